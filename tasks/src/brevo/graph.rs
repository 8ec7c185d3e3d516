//! Brevo's random graphs: the ancestors of one vertex with parents first, and the question's depth. Vertices are numbered
//! in order of creation, so a parent always has the smaller number.

use serde::Deserialize;

use crate::cpython::Random;

/// Maximum number of parents, and of children, of a vertex.
pub(super) const MOST_CHILDREN: usize = 4;

/// How a quarter of the vertex count is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    /// Down, as in the published code.
    Floor,
    /// Up, as in the paper.
    Ceil,
}

/// Which vertex is the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// The last vertex, as in the published code.
    Last,
    /// One of the last quarter of the vertices, drawn uniformly, as in the paper.
    LastQuarter,
}

/// A graph and the answer to its one question. Its buffers are reused from draw to draw.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The published number of each vertex, drawn from 1..=N.
    ids: Vec<u32>,
    parents: Vec<Parents>,
    children: Vec<u8>,
    query: u32,
    /// For each vertex in the closure of the query, the number of its children there not in the order yet; else 0.
    waiting: Vec<u32>,
    answer: Vec<u32>,
    depth: u32,
    free: Vec<u32>,
    distances: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Parents {
    list: [u32; MOST_CHILDREN],
    len: u8,
}

impl Parents {
    fn as_slice(&self) -> &[u32] {
        &self.list[..usize::from(self.len)]
    }
}

impl Graph {
    /// Draws a graph of `size` vertices with ids from 1..=`most_id`, and the order of its answer.
    pub(super) fn draw(
        &mut self,
        random: &mut Random,
        size: u32,
        most_id: u32,
        leaves: Rounding,
        ask: Ask,
    ) {
        self.draw_edges(random, size, most_id, leaves);
        let candidates = match ask {
            // The script draws a choice here although there is only one candidate.
            Ask::Last => 1,
            Ask::LastQuarter => (size / 4).max(1),
        };
        self.query = size - candidates + random.below(candidates);
        self.draw_answer(random);
    }

    fn draw_edges(&mut self, random: &mut Random, size: u32, most_id: u32, rounding: Rounding) {
        let Graph {
            ids,
            parents,
            children,
            query: _,
            waiting: _,
            answer: _,
            depth: _,
            free,
            distances: _,
        } = self;
        random.sample(most_id, size, ids);
        ids.iter_mut().for_each(|id| *id += 1);
        let quarter = match rounding {
            Rounding::Floor => (size - 1) / 4,
            Rounding::Ceil => (size - 1).div_ceil(4),
        };
        let leaves = 1 + random.below(quarter + 1);
        parents.clear();
        parents.resize(size as usize, Parents::default());
        children.clear();
        children.resize(size as usize, 0);
        // Vertices that can still get a child, in order of creation. The newest always can.
        free.clear();
        free.extend(0..leaves);
        for vertex in leaves..size {
            let count = 1 + random.below((free.len() as u32).min(MOST_CHILDREN as u32));
            let picks = random.sample_few(free.len() as u32, count);
            let Parents { list, len } = &mut parents[vertex as usize];
            *len = count as u8;
            let mut full = [0; MOST_CHILDREN];
            let mut filled = 0;
            for (slot, &pick) in list.iter_mut().zip(&picks[..count as usize]) {
                let parent = free[pick as usize];
                *slot = parent;
                let children = &mut children[parent as usize];
                *children += 1;
                full[filled] = pick;
                filled += usize::from(usize::from(*children) == MOST_CHILDREN);
            }
            if filled > 0 {
                let full = &mut full[..filled];
                full.sort_unstable();
                for &position in full.iter().rev() {
                    free.remove(position as usize);
                }
            }
            free.push(vertex);
        }
    }

    /// Kahn's algorithm from the query backwards. Each step draws one of the ready vertices.
    fn draw_answer(&mut self, random: &mut Random) {
        let Graph {
            ids: _,
            parents,
            children: _,
            query,
            waiting,
            answer,
            depth,
            free: ready,
            distances,
        } = self;
        let query = *query as usize;
        waiting.clear();
        waiting.resize(parents.len(), 0);
        distances.clear();
        distances.resize(parents.len(), u32::MAX);
        distances[query] = 0;
        *depth = u32::MAX;
        // Parents have smaller numbers, so each vertex is known to be in the closure before the loop reaches it.
        for vertex in (0..=query).rev() {
            let distance = distances[vertex];
            if distance == u32::MAX {
                continue;
            }
            for &parent in parents[vertex].as_slice() {
                waiting[parent as usize] += 1;
                let known = &mut distances[parent as usize];
                *known = distance.saturating_add(1).min(*known);
            }
            if parents[vertex].len == 0 {
                *depth = distance.min(*depth);
            }
        }
        answer.clear();
        ready.clear();
        ready.push(query as u32);
        while !ready.is_empty() {
            let vertex = ready.remove(random.below(ready.len() as u32) as usize);
            answer.push(vertex);
            for &parent in parents[vertex as usize].as_slice() {
                let waiting = &mut waiting[parent as usize];
                *waiting -= 1;
                if *waiting == 0 {
                    ready.push(parent);
                }
            }
        }
        answer.reverse();
    }

    /// The drawn id of a vertex, which its name encodes.
    pub fn id(&self, vertex: u32) -> u32 {
        self.ids[vertex as usize]
    }

    /// The vertex that the sample asks about.
    pub fn query(&self) -> u32 {
        self.query
    }

    /// The query and its ancestors, parents before children.
    pub fn answer(&self) -> &[u32] {
        &self.answer
    }

    /// Number of edges on the shortest path from the query to a vertex without parents.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    pub(super) fn in_an_edge(&self, vertex: u32) -> bool {
        self.children[vertex as usize] > 0 || self.parents[vertex as usize].len > 0
    }

    /// All edges, parent first, in order of creation.
    pub(super) fn edges(&self, out: &mut Vec<(u16, u16)>) {
        out.clear();
        for (child, parents) in self.parents.iter().enumerate() {
            out.extend(parents.as_slice().iter().map(|&parent| (parent as u16, child as u16)));
        }
    }
}
