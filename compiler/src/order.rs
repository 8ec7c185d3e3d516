//! Topological order and cycles: the only module that uses petgraph. Results depend on numbering alone, so they are the
//! same on every run.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::{kosaraju_scc, toposort};
use petgraph::graph::{DiGraph, NodeIndex};

/// Nodes in an order with dependencies first, or a cycle `a → b → … → a` without the
/// repeated end.
pub(crate) fn topological(
    nodes: usize,
    edges: &[(usize, usize)],
) -> Result<Vec<usize>, Vec<usize>> {
    let graph = graph(nodes, edges);
    match toposort(&graph, None) {
        Ok(order) => Ok(order.into_iter().map(NodeIndex::index).collect()),
        Err(_) => Err(cycles_of(&graph, edges).into_iter().next().unwrap_or_default()),
    }
}

/// One cycle for each set of nodes that depend on one another, ordered by their smallest nodes.
pub(crate) fn cycles(nodes: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    cycles_of(&graph(nodes, edges), edges)
}

fn graph(nodes: usize, edges: &[(usize, usize)]) -> DiGraph<(), ()> {
    let mut graph = DiGraph::<(), ()>::with_capacity(nodes, edges.len());
    for _ in 0..nodes {
        graph.add_node(());
    }
    for &(from, to) in edges {
        graph.add_edge(NodeIndex::new(to), NodeIndex::new(from), ());
    }
    graph
}

fn cycles_of(graph: &DiGraph<(), ()>, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let loops: BTreeSet<usize> = edges.iter().filter(|(a, b)| a == b).map(|(a, _)| *a).collect();
    // Kosaraju's algorithm is iterative here: chains of definitions may be long.
    let mut components: Vec<BTreeSet<usize>> = kosaraju_scc(graph)
        .into_iter()
        .map(|c| c.into_iter().map(NodeIndex::index).collect::<BTreeSet<usize>>())
        .filter(|c| c.len() > 1 || c.iter().any(|n| loops.contains(n)))
        .collect();
    components.sort();
    // Map each node to its component, so that each edge is visited once.
    let mut component_of: BTreeMap<usize, usize> = BTreeMap::new();
    for (number, component) in components.iter().enumerate() {
        component_of.extend(component.iter().map(|node| (*node, number)));
    }
    let mut inside: Vec<Vec<(usize, usize)>> = vec![Vec::new(); components.len()];
    for &(from, to) in edges {
        if let (Some(a), Some(b)) = (component_of.get(&from), component_of.get(&to))
            && a == b
            && let Some(edges) = inside.get_mut(*a)
        {
            edges.push((from, to));
        }
    }
    components.iter().zip(&inside).map(|(component, edges)| cycle(component, edges)).collect()
}

/// A cycle in a component, along the edges inside it.
fn cycle(component: &BTreeSet<usize>, edges: &[(usize, usize)]) -> Vec<usize> {
    let Some(&start) = component.first() else { return Vec::new() };
    let mut next: BTreeMap<usize, usize> = BTreeMap::new();
    for &(from, to) in edges {
        let least = next.entry(from).or_insert(to);
        *least = to.min(*least);
    }
    // Walk inside the component until a node repeats. Every node there has a successor there.
    let mut position = BTreeMap::from([(start, 0usize)]);
    let mut walk = vec![start];
    let mut node = start;
    while let Some(&to) = next.get(&node) {
        if let Some(at) = position.get(&to) {
            return walk.split_off(*at);
        }
        position.insert(to, walk.len());
        walk.push(to);
        node = to;
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
        let edges = [(0, 1), (1, 0), (2, 0), (3, 4), (4, 5), (5, 3), (6, 6)];
        assert_eq!(cycles(7, &edges), [vec![0, 1], vec![3, 4, 5], vec![6]]);
    }
}
