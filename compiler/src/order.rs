//! Orders and cycles: the only module that knows petgraph.
//!
//! In: a number of nodes and `from depends on to` edges. Out: dependencies before dependants, or
//! one cycle as a list of nodes. Must stay true: results depend on numbering alone, so they are
//! the same on every run.

use petgraph::algo::{tarjan_scc, toposort};
use petgraph::graph::{DiGraph, NodeIndex};

/// Nodes with everything they depend on before them, or a cycle `a → b → … → a` without the
/// repeated end.
pub fn topological(nodes: usize, edges: &[(usize, usize)]) -> Result<Vec<usize>, Vec<usize>> {
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
    let mut components: Vec<Vec<usize>> = tarjan_scc(graph)
        .into_iter()
        .map(|c| c.into_iter().map(NodeIndex::index).collect())
        .filter(|c: &Vec<usize>| {
            c.len() > 1 || c.iter().any(|n| edges.contains(&(*n, *n)))
        })
        .collect();
    for component in &mut components {
        component.sort_unstable();
    }
    components.sort();
    let Some(component) = components.first() else { return Vec::new() };
    let Some(&start) = component.first() else { return Vec::new() };
    // Walk inside the component until a node repeats: every node there has a successor there.
    let mut walk = vec![start];
    loop {
        let here = walk[walk.len() - 1];
        let next = edges
            .iter()
            .filter(|(from, to)| *from == here && component.contains(to))
            .map(|(_, to)| *to)
            .min();
        match next {
            Some(next) => match walk.iter().position(|n| *n == next) {
                Some(at) => return walk.split_off(at),
                None => walk.push(next),
            },
            None => return walk,
        }
    }
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
