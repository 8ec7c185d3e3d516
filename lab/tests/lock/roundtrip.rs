//! The canonical text is self-sufficient: without std, it compiles to the same identity and to itself, and it does not depend on
//! the edits that led to the arch.

use compiler::program::{Compiled, Program, Std};
use lab::lock::{ArchLock, Lock, write};
use proptest::prelude::*;

use support::generate::random;
use support::programs::{
    TEXT, compiled, compiled_file, compiled_in, files, program_of, with_layers,
};

fn assert_stands_alone(arch: &Compiled) {
    let program = Program::new([("lock".to_owned(), arch.text.clone())], Std::None);
    assert!(
        program.diagnostics.is_empty(),
        "{}\n{}",
        program.render(&program.diagnostics),
        arch.text
    );
    let again = compiled_in(&program, "lock", &arch.name);
    assert_eq!(again.text, arch.text);
    assert_eq!(again.identity.graph_text, arch.identity.graph_text, "{}", arch.text);
    assert_eq!(again.identity.manifest_text, arch.identity.manifest_text, "{}", arch.text);
    assert_eq!(again.identity, arch.identity);
    let states = |c: &Compiled| c.graph.top.states.clone();
    assert_eq!(states(&again), states(arch), "{}", arch.text);
    // The same fields, except for the names of definitions that had to be renamed.
    let paths = |c: &Compiled| c.fields.iter().map(|f| f.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(&again), paths(arch), "{}", arch.text);
    // A lock of it reads back unchanged.
    let lock = Lock::Arch(ArchLock::new(&arch.name, "test.canon", arch).unwrap());
    let text = write(&lock);
    match lab::lock::read("test.lock", &text) {
        Ok(again) => assert_eq!(write(&again), text),
        Err(e) => panic!("{e:?}\n{text}"),
    }
    // With std it means the same: its own definitions come first.
    let beside = compiled_in(&program_of(&arch.text), TEXT, &arch.name);
    assert_eq!(beside.identity, arch.identity);
}

#[test]
fn committed_archs() {
    for file in files("arch", ".canon").into_iter().chain(files("tests/cases/hash", ".canon")) {
        compiled_file(&file).iter().for_each(assert_stands_alone);
    }
}

/// Two files that each define `proj`, called without an instance name: the path is still `proj`.
#[test]
fn an_instance_name_left_out_survives_renaming() {
    let other_file = "block proj(x) {\n  linear w (x, dim) * 2\n}\n".to_owned();
    let text = with_layers(
        "import proj as other from \"other.canon\"\nblock proj(x) {\n  linear w (x, dim)\n}\nblock l(x) {\n  x + proj(x) + other(x)\n}",
        "2 of l",
    );
    let files = [("other.canon".to_owned(), other_file), (TEXT.to_owned(), text)];
    let arch = compiled_in(&Program::new(files, Std::Embedded), TEXT, "a");
    assert!(
        arch.identity.manifest_text.contains("layers.0.other.w "),
        "{}",
        arch.identity.manifest_text
    );
    assert!(arch.text.contains("proj_2"), "{}", arch.text);
    assert_stands_alone(&arch);
}

/// Names of std, of primitives, of functions and of the arch itself; std also uses them all.
#[test]
fn names_that_collide_with_others_survive() {
    for (definitions, layers) in [
        // An mlp with the name of a fill's primitive.
        (
            "mlp canon(x) {\n  linear w (x, dim)\n}",
            "2 of decoder { mixer attention { heads 4 }  mlp canon\ncanon A, B }",
        ),
        // A mixer called `short_conv`, and one with a setting of that name.
        (
            "mixer short_conv(x) {\n  linear w (x, dim)\n}",
            "[decoder { mixer short_conv  mlp swiglu }, decoder { mixer gla { heads 4 }  mlp swiglu }]",
        ),
        // Definitions that differ from std's only in case.
        (
            "block Decoder(x) {\n  x + linear Swiglu (x, dim)\n}",
            "[Decoder, decoder { mixer attention { heads 4 }  mlp swiglu }]",
        ),
        // The meaning of `floor` and `ceil_to` in std.
        (
            "block floor(x) {\n  x + linear w (x, dim)\n}\nblock ceil_to(x) {\n  x + linear w (x, dim)\n}",
            "[floor, ceil_to, decoder { mixer attention { heads 4 }  mlp swiglu }]",
        ),
        // The name of an init rule that Mamba2 uses.
        (
            "block ones(x) {\n  x + linear w (x, dim)\n}\nblock log_uniform(x) {\n  x + ones(x)\n}",
            "[log_uniform, decoder { mixer mamba2 { heads 4 }  mlp swiglu }]",
        ),
        // A name that renaming would make.
        (
            "block rotary(q, k; head_dim) {\n  q, rope(k)\n}\nblock rotary_2(q, k; head_dim) {\n  rope(q), k\n}",
            "[decoder { mixer attention { heads 4, rope rotary }  mlp swiglu }, decoder { mixer attention { heads 4, rope rotary_2 }  mlp swiglu }, decoder { mixer gated_deltanet { heads 4 }  mlp swiglu }]",
        ),
        // A field of every arch.
        ("block dim(x; layer = 1) {\n  x + linear w (x, dim * layer)\n}", "2 of dim"),
    ] {
        let text = with_layers(definitions, layers);
        assert_stands_alone(&compiled(&text));
        // The arch itself has a name that std uses.
        for name in
            ["rotary", "untied", "Attention"].into_iter().filter(|n| !definitions.contains(n))
        {
            assert_stands_alone(&compiled(&text.replace("arch a {", &format!("arch {name} {{"))));
        }
    }
}

/// One tree has one text, whatever edits led to it.
#[test]
fn the_text_does_not_depend_on_the_edits() {
    let base =
        with_layers("", "4 of decoder { mixer attention { heads 4 }  mlp swiglu { hidden 8 } }");
    let direct = with_layers(
        "",
        "4 of decoder { mixer attention { heads 2 }  mlp swiglu { hidden 8 }  canon A }",
    );
    let edited = format!(
        "{base}\narch b = a with {{ canon A, B  mixer.heads 8 }}\narch c = b with {{ empty B  mixer.heads 2 }}"
    );
    let text = |t: &str| compiled(t).text.replace("arch c ", "arch a ");
    assert_eq!(text(&edited), text(&direct));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(96), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_archs(random in random()) {
        assert_stands_alone(&random.base());
        assert_stands_alone(&random.filled(|_| true));
    }
}
