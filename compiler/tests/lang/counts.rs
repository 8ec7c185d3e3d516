//! Parameter counts of the 64 published recipes, from the arch texts, against `tests/golden/param_counts.tsv`, counted
//! by the reference implementation on its meta device.

use std::collections::BTreeMap;

use compiler::analyse::{Analysis, analyse};

use support::programs::{arch, read};

/// `GDN2Canon-1B-Nemo-1T-lr0.002` is our `gdn2canon_1B`. The release's own Llamas with Canon layers
/// also rotate only a quarter of each head, which adds no parameters.
fn ours(recipe: &str) -> String {
    let mut parts = recipe.split('-');
    let (family, size) = (parts.next().unwrap(), parts.next().unwrap());
    let release = if family == "LlamaCanon" { "_release" } else { "" };
    format!("{}_{size}{release}", family.to_lowercase().replace("conv", ""))
}

#[test]
fn parameter_counts_equal_the_published_ones() {
    let table = read("tests/golden/param_counts.tsv");
    let mut lines = table.lines();
    let header: Vec<&str> = lines.next().unwrap().split('\t').collect();
    assert_eq!(
        header,
        [
            "recipe",
            "total_params",
            "non_embedding_params",
            "canon_params_incl_b",
            "canon_params_ABCD_only",
            "vocab_size"
        ]
    );
    let mut known: BTreeMap<String, Analysis> = BTreeMap::new();
    let mut rows = 0;
    for line in lines {
        let cells: Vec<&str> = line.split('\t').collect();
        let want: Vec<i64> = cells[1..5].iter().map(|n| n.parse().unwrap()).collect();
        let name = ours(cells[0]);
        let a = known.entry(name.clone()).or_insert_with(|| analyse(&arch(&name).graph, 4096));
        let got = [a.parameters, a.non_embedding, a.canon + a.short_conv, a.canon];
        assert_eq!(got.as_slice(), want.as_slice(), "{} as {name}", cells[0]);
        rows += 1;
    }
    assert_eq!((rows, known.len()), (64, 24));
}

/// The table's Llamas with Canon layers have the same counts under the paper's claim that only the
/// Canon layers are new.
#[test]
fn the_releases_llamas_count_the_same_as_ours() {
    for size in ["1B", "3B", "8B"] {
        let [ours, release] = ["", "_release"]
            .map(|kind| analyse(&arch(&format!("llamacanon_{size}{kind}")).graph, 4096));
        assert_eq!((ours.parameters, ours.canon), (release.parameters, release.canon), "{size}");
    }
}
