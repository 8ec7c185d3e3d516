//! Pairs that must differ and pairs that must agree: `tests/cases/hash` has `differ.txt` with one mutation per line
//! over the archs of `bases.canon`, and `agree_*.canon`, each with archs of one graph, whose manifests agree or differ
//! as the first line says.

use std::collections::BTreeMap;

use compiler::program::{Program, Std};

use support::programs::{compiled_in, files, program, read};

struct Mutation {
    base: String,
    what: String,
    edits: String,
}

fn mutations() -> Vec<Mutation> {
    let table = read("tests/cases/hash/differ.txt");
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut cells = line.splitn(3, '|').map(|cell| cell.trim().to_owned());
            let mut next = || cells.next().unwrap_or_else(|| panic!("three cells: {line}"));
            Mutation { base: next(), what: next(), edits: next() }
        })
        .collect()
}

#[test]
fn every_mutation_is_another_graph() {
    let bases = read("tests/cases/hash/bases.canon");
    let all = mutations();
    assert!(all.len() >= 100);
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let file = "tests/cases/hash/bases.canon";
    let program_of_bases = program(file);
    for base in program_of_bases.archs(file) {
        let compiled = compiled_in(&program_of_bases, file, &base);
        assert_eq!(seen.insert(compiled.identity.graph.to_string(), base.clone()), None, "{base}");
    }
    for Mutation { base, what, edits } in all {
        let text = format!("{bases}\narch mutated = {base} with {{ {edits} }}\n");
        let program = Program::new([("differ.canon".to_owned(), text)], Std::Embedded);
        let mutated = compiled_in(&program, "differ.canon", "mutated");
        let name = format!("{base}: {what}");
        let before = seen.insert(mutated.identity.graph.to_string(), name.clone());
        assert_eq!(before, None, "the same graph as `{name}`");
    }
}

#[test]
fn archs_of_one_graph_agree() {
    let files: Vec<String> =
        files("tests/cases/hash", ".canon").into_iter().filter(|f| f.contains("/agree_")).collect();
    assert!(files.len() >= 8);
    for file in files {
        let text = read(&file);
        let rule = text.lines().next().and_then(|line| line.strip_prefix("// agree: ")).unwrap();
        let apart: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("// not: ")).collect();
        let program = program(&file);
        let archs = program.archs(&file);
        let compiled: Vec<_> =
            archs.iter().map(|arch| compiled_in(&program, &file, arch)).collect();
        let first = &compiled[0].identity;
        for other in compiled.iter().skip(1) {
            let name = format!("{file}: `{}` and `{}`", compiled[0].name, other.name);
            if apart.contains(&other.name.as_str()) {
                assert_ne!(first.graph, other.identity.graph, "{name}");
                continue;
            }
            assert_eq!(first.graph_text, other.identity.graph_text, "{name}");
            assert_eq!(first.graph, other.identity.graph, "{name}");
            let manifests = first.manifest == other.identity.manifest;
            match rule {
                "graph, manifest" => assert!(manifests, "{name}: manifests differ"),
                "graph, not manifest" => assert!(!manifests, "{name}: manifests are the same"),
                _ => panic!("{file}: unknown rule: {rule}"),
            }
        }
        assert!(compiled.len() - apart.len() >= 2, "{file}: nothing to compare");
    }
}
