//! Orders and cycles: the only module that knows petgraph.
//!
//! In: a number of nodes and `from depends on to` edges. Out: dependencies before dependants, or
//! one cycle as a list of nodes. Must stay true: results depend on numbering alone, so they are
//! the same on every run.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::{kosaraju_scc, toposort};
use petgraph::graph::{DiGraph, NodeIndex};

/// Nodes with everything they depend on before them, or a cycle `a → b → … → a` without the
/// repeated end.
pub(crate) fn topological(
    nodes: usize,
    edges: &[(usize, usize)],
) -> Result<Vec<usize>, Vec<usize>> {
    let mut graph = DiGraph::<(), ()>::with_capacity(nodes, edges.len());
    for _ in 0..nodes {
        graph.add_node(());
    }
    for &(from, to) in edges {
        graph.add_edge(NodeIndex::new(to), NodeIndex::new(from), ());
    }
    match toposort(&graph, None) {
        Ok(order) => Ok(order.into_iter().map(NodeIndex::index).collect()),
        Err(_) => Err(cycle(&graph, edges)),
    }
}

fn cycle(graph: &DiGraph<(), ()>, edges: &[(usize, usize)]) -> Vec<usize> {
    let loops: BTreeSet<usize> = edges.iter().filter(|(a, b)| a == b).map(|(a, _)| *a).collect();
    // Kosaraju's algorithm keeps its own stack: chains of definitions may be long.
    let component: BTreeSet<usize> = kosaraju_scc(graph)
        .into_iter()
        .map(|c| c.into_iter().map(NodeIndex::index).collect::<BTreeSet<usize>>())
        .filter(|c| c.len() > 1 || c.iter().any(|n| loops.contains(n)))
        .min()
        .unwrap_or_default();
    let Some(&start) = component.first() else { return Vec::new() };
    let mut next: BTreeMap<usize, usize> = BTreeMap::new();
    for &(from, to) in edges.iter().filter(|(a, b)| component.contains(a) && component.contains(b))
    {
        let least = next.entry(from).or_insert(to);
        *least = to.min(*least);
    }
    // Walk inside the component until a node repeats: every node there has a successor there.
    let mut place = BTreeMap::from([(start, 0usize)]);
    let mut walk = vec![start];
    let mut here = start;
    while let Some(&to) = next.get(&here) {
        if let Some(at) = place.get(&to) {
            return walk.split_off(*at);
        }
        place.insert(to, walk.len());
        walk.push(to);
        here = to;
    }
    walk
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first_and_cycles_are_named() {
        assert_eq!(topological(3, &[(0, 1), (1, 2)]), Ok(vec![2, 1, 0]));
        assert_eq!(topological(3, &[(0, 1), (1, 2), (2, 1)]), Err(vec![1, 2]));
        assert_eq!(topological(1, &[(0, 0)]), Err(vec![0]));
    }
}
