//! `canonc graph`.

use std::collections::BTreeSet;

use crate::{GOOD, canonc, folder, root};

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
        // The text of the graph names its ops and parameters, each of which has a tool tip.
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

/// Every tag closed by its own, in order; no bare `&` or `<`.
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
    // A name is letters; a doc comment and a file name are not shown. What is left is escaped.
    let dir = folder(&[("a b&<.canon", GOOD)]);
    let ran = canonc(dir.path(), &["graph", "a b&<.canon", "--format", "svg"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    well_formed(&ran.stdout);
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
