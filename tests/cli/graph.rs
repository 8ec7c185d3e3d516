//! `canonc graph`.

use std::collections::BTreeSet;
use std::io::Read as _;

use crate::{GOOD, canonc, command, folder, hex_replaced, root};

#[test]
fn text_and_dot() {
    let file = "arch/llamacanon_tiny.canon";
    for (name, arguments) in [
        ("text", &["graph", file] as &[&str]),
        ("layer", &["graph", file, "--layer", "1"]),
        ("erased", &["graph", file, "--erase", "A,B,D", "--layer", "0"]),
        ("dot", &["graph", file, "--format", "dot"]),
        ("dot_layer", &["graph", file, "--format", "dot", "--layer", "0"]),
    ] {
        insta::assert_snapshot!(name, canonc(&root(), arguments).text(&root()));
    }
}

#[test]
fn erasing_all_slots_gives_the_twin() {
    for family in ["llama", "gla5", "gdn2", "mamba2"] {
        let canon = format!("arch/{family}canon_tiny.canon");
        let base = format!("arch/{family}_tiny.canon");
        let erased = canonc(&root(), &["graph", &canon, "--erase", "all"]);
        let base = canonc(&root(), &["graph", &base]);
        assert_eq!(erased.code, 0);
        assert_eq!(erased.stdout, base.stdout, "{family}");
    }
}

#[test]
fn svg_is_well_formed_and_shows_every_op() {
    for name in ["llamacanon_1B", "gdn2canon_1B", "mamba2_1B", "gla5_1B", "hybridcanon_1B"] {
        let file = format!("arch/{name}.canon");
        let ran = canonc(&root(), &["graph", &file, "--format", "svg"]);
        let again = canonc(&root(), &["graph", &file, "--format", "svg"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{name}");
        assert_eq!(ran.stdout, again.stdout, "{name}: equal graphs, equal bytes");
        well_formed(&ran.stdout);
        // The graph's text names its ops and parameters, and each has a tooltip.
        let text = canonc(&root(), &["graph", &file]).stdout;
        let ops: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.split_once(" = ")?.1.split_once('@'))
            .map(|(op, _)| op)
            .collect();
        for op in ops {
            let drawn = [format!("<title>{op}@"), format!(": {op}</text>")];
            assert!(drawn.iter().any(|tip| ran.stdout.contains(tip)), "{name} lacks {op}");
        }
    }
}

/// Checks that every tag is closed, in order, and that `&` and `<` are escaped.
fn well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a tag ends");
        assert!(!text.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "").contains('&'));
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split_whitespace().next().unwrap()),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

#[test]
fn names_cannot_break_the_picture() {
    // A name has only letters; doc comments and file names are not shown. Everything else is escaped.
    let dir = folder(&[("a b&<.canon", GOOD)]);
    let ran = canonc(dir.path(), &["graph", "a b&<.canon", "--format", "svg"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    well_formed(&ran.stdout);
}

#[test]
fn the_graph_of_a_lock_and_its_plan() {
    let dir = folder(&[]);
    assert_eq!(canonc(dir.path(), &["new", "."]).code, 0);
    let build = ["build", "-q", "arch/first.canon", "arch/firstcanon.canon", "recipes/depo.toml"];
    assert_eq!(canonc(dir.path(), &build).code, 0);
    let source = canonc(dir.path(), &["graph", "arch/firstcanon.canon"]);
    let lock = canonc(dir.path(), &["graph", "lockfiles/firstcanon.lock"]);
    assert_eq!((lock.code, &lock.stdout), (0, &source.stdout));
    let comparison = ["graph", "lockfiles/depo.lock", "--arch", "firstcanon"];
    assert_eq!(canonc(dir.path(), &comparison).stdout, source.stdout);
    let plan = canonc(dir.path(), &[&comparison[..], &["--plan"]].concat());
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    for part in ["micro\n", "\ncombine\n", "\nupdate\n", "= causal_conv_grad", ", layer 1\n"] {
        assert!(plan.stdout.contains(part), "no {part} in {}", plan.stdout);
    }
    // The lock gives its own weight decay and the source the default, which are equal here.
    let usual = canonc(dir.path(), &["graph", "arch/firstcanon.canon", "--plan"]);
    assert_eq!(usual.stdout, plan.stdout);
    for (name, arguments) in [
        ("no_such_arch_in_lock", &["graph", "lockfiles/depo.lock", "--arch", "second"] as &[&str]),
        ("which_arm", &["show", "lockfiles/none.lock"]),
    ] {
        insta::assert_snapshot!(name, canonc(dir.path(), arguments).text(dir.path()));
    }
}

#[test]
fn artefacts_are_drawn_with_their_state() {
    let dir = folder(&[]);
    assert_eq!(canonc(dir.path(), &["new", "."]).code, 0);
    let build = ["build", "-q", "arch/first.canon", "arch/firstcanon.canon", "recipes/depo.toml"];
    assert_eq!(canonc(dir.path(), &build).code, 0);
    let path = dir.path().join("arch/firstcanon.canon");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("A, B, C, D", "A, C")).unwrap();
    std::fs::write(dir.path().join("arch/broken.canon"), "arch {").unwrap();
    std::fs::rename(
        dir.path().join("lockfiles/first.lock"),
        dir.path().join("lockfiles/other.lock"),
    )
    .unwrap();
    let ran = canonc(dir.path(), &["graph", "--artifacts"]);
    insta::assert_snapshot!("artefacts", hex_replaced(&ran.text(dir.path()), 12, "[id]"));
    let dot = canonc(dir.path(), &["graph", "--artifacts", "--format", "dot"]);
    assert!(dot.stdout.starts_with("digraph {") && dot.stdout.contains(" -> "));
    let svg = canonc(dir.path(), &["graph", "--artifacts", "--format", "svg"]);
    insta::assert_snapshot!("artefacts_as_svg", svg.text(dir.path()));
    let nowhere = folder(&[]);
    let ran = canonc(nowhere.path(), &["graph", "--artifacts"]);
    insta::assert_snapshot!("no_artefacts", ran.text(nowhere.path()));
}

#[test]
fn bad_arguments() {
    let two = format!("{GOOD}\narch other = good with {{ canon A }}\n");
    let dir = folder(&[("two.canon", &two)]);
    for (name, arguments) in [
        ("which_arch", &["graph", "two.canon"] as &[&str]),
        ("no_layer", &["graph", "two.canon", "--arch", "good", "--layer", "2"]),
        ("no_slot", &["graph", "two.canon", "--arch", "other", "--erase", "A,E"]),
        ("no_slots", &["graph", "two.canon", "--arch", "good", "--erase", "A"]),
        ("format", &["graph", "two.canon", "--format", "png"]),
    ] {
        insta::assert_snapshot!(name, canonc(dir.path(), arguments).text(dir.path()));
    }
}

#[test]
fn more_boxes_than_a_picture_holds() {
    let body: String = (0..500).map(|_| "  x = silu(x)\n").collect();
    let long = format!("block long(x; mixer) {{\n{body}  x\n}}\n");
    let arch = GOOD.replace("decoder", "long").replace("mlp   swiglu { hidden 16 }", "");
    let dir = folder(&[("long.canon", &(long + &arch))]);
    let ran = canonc(dir.path(), &["graph", "long.canon", "--format", "svg"]);
    insta::assert_snapshot!(ran.text(dir.path()));
    assert_eq!(canonc(dir.path(), &["graph", "long.canon", "--format", "dot"]).code, 0);
}

#[test]
fn a_closed_pipe_is_quiet() {
    let mut command = command(&root(), &["graph", "arch/hybridcanon_1B.canon"]);
    let mut child = command.spawn().unwrap();
    let mut byte = [0];
    child.stdout.take().unwrap().read_exact(&mut byte).unwrap();
    // The reading end closes here, with most of the text unwritten or in the pipe.
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"".as_slice()));
}
