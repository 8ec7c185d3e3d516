//! Erasure: a Canon arch without its slots is its twin, byte for byte, also if only some slots are erased.

use std::collections::BTreeSet;

use compiler::analyse::analyse;
use compiler::canonical::identify;
use compiler::erase::{erase, erase_all};
use compiler::graph::Graph;
use compiler::program::Compiled;
use proptest::prelude::*;

use support::generate::random;
use support::programs::{arch, compiled, files, with_layers};

fn assert_same(erased: &Graph, twin: &Compiled, name: &str) {
    let identity = identify(erased);
    assert_eq!(identity.graph_text, twin.identity.graph_text, "{name}");
    assert_eq!(identity.manifest_text, twin.identity.manifest_text, "{name}");
    assert_eq!(identity, twin.identity, "{name}");
    assert_eq!(analyse(erased, 128), analyse(&twin.graph, 128), "{name}");
    let paths = |graph: &Graph| graph.top.states.iter().map(|s| s.0.clone()).collect::<Vec<_>>();
    assert_eq!(paths(erased), paths(&twin.graph), "{name}");
}

#[test]
fn an_erased_committed_arch_is_its_twin() {
    let mut pairs = 0;
    for file in files("arch", ".canon") {
        let name = file.trim_start_matches("arch/").trim_end_matches(".canon");
        let Some((family, size)) = name.split_once("canon_") else { continue };
        let canon = arch(name);
        // The release's archs also differ from the twin in RoPE: without Canon layers they are the
        // twin with that edit.
        let twin = match size.strip_suffix("_release") {
            None => arch(&format!("{family}_{size}")),
            Some(size) => {
                let edit = if size == "1B" { 16 } else { 32 };
                let text = arch(&format!("{family}_{size}")).text;
                compiled(&format!(
                    "{text}\narch turned = {family}_{size} with {{ mixer.rope.dims {edit} }}"
                ))
            }
        };
        assert_ne!(canon.identity.graph, twin.identity.graph, "{name}");
        assert_same(&erase_all(&canon.graph), &twin, name);
        // Erasing a graph without filled slots changes nothing.
        assert_same(&erase_all(&twin.graph), &twin, name);
        pairs += 1;
    }
    assert!(pairs >= 18, "{pairs} pairs");
}

#[test]
fn erasing_some_slots_leaves_the_others() {
    let all = arch("llamacanon_tiny");
    let text = arch("llama_tiny").text;
    let edited = |fills: &str| compiled(&format!("{text}\narch b = llama_tiny with {{ {fills} }}"));
    assert_same(&erase(&all.graph, &|_, slot| slot == "B"), &edited("canon A, C, D"), "B");
    assert_same(
        &erase(&all.graph, &|layer, _| layer == Some(0)),
        &edited("canon layers[1].A, layers[1].B, layers[1].C, layers[1].D"),
        "layer 0",
    );
    assert_same(
        &erase(&all.graph, &|layer, slot| layer == Some(1) || slot == "D"),
        &edited("canon layers[0].A, layers[0].B, layers[0].C"),
        "layer 1, and D",
    );
}

/// Slots inside a shared instance are filled at each of its calls, with the parameters of one fill.
#[test]
fn slots_of_shared_instances_are_erased() {
    let text = |fills: &str| {
        with_layers(
            "block pair(x) {\n  x + linear w (slot A(short_conv conv (x)), dim)\n}
block l(x; mlp) {\n  share twice = pair\n  share gated = mlp\n  twice(twice(x)) + gated(gated(x))\n}",
            &format!("[3 of share l {{ mlp swiglu {{ hidden 4 }}  {fills} }}, l {{ mlp swiglu {{ hidden 4 }}  {fills} }}]"),
        )
    };
    let (all, some, none) =
        (compiled(&text("canon A, D")), compiled(&text("canon A")), compiled(&text("")));
    assert_same(&erase_all(&all.graph), &none, "all");
    assert_same(&erase(&all.graph, &|_, slot| slot == "D"), &some, "D");
    assert_same(&erase_all(&some.graph), &none, "A");
    assert_eq!(analyse(&all.graph, 8).canon, 2 * (16 * 4 + 8 * 4));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(96), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_archs_and_slot_sets(
        random in random(),
        kept in proptest::sample::subsequence(vec!["A", "B", "C", "D", "E"], 0..=5),
    ) {
        let all = random.filled(|_| true);
        assert_same(&erase_all(&all.graph), &random.base(), "all");
        let kept: BTreeSet<&str> = kept.into_iter().collect();
        let some = random.filled(|slot| kept.contains(slot));
        assert_same(&erase(&all.graph, &|_, slot| !kept.contains(slot)), &some, "some");
    }
}
