//! Detects two edits of one field in one place, or of a field and one of its parents. Time is linear (up to a
//! logarithm) in edits times layers, because both can be large.

use std::collections::BTreeMap;

use dsl::Diagnostics;
use dsl::limits::MAX_ERRORS;

use super::Edit;
use crate::diag;

/// Used instead of a layer number for edits of the arch itself.
const ARCH: usize = usize::MAX;

pub(super) fn repeated(edits: &[Edit], diagnostics: &mut Diagnostics) {
    let mut paths = Paths::default();
    // The first edit of a path, or of something below it, in each layer.
    let mut at: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut below: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    'edits: for (i, edit) in edits.iter().enumerate() {
        let steps = paths.steps(&edit.path);
        let Some((&last, above)) = steps.split_last() else { continue };
        for layer in edit.layers.as_deref().unwrap_or(&[ARCH]) {
            let known = steps
                .iter()
                .filter_map(|step| at.get(&(*step, *layer)))
                .chain(below.get(&(last, *layer)))
                .min();
            if let Some(earlier) = known.and_then(|earlier| edits.get(*earlier)) {
                diagnostics.push(diag::edited_twice(&edit.path, edit.span, earlier.span));
                if diagnostics.len() > MAX_ERRORS {
                    return;
                }
                continue 'edits;
            }
        }
        for layer in edit.layers.as_deref().unwrap_or(&[ARCH]) {
            at.insert((last, *layer), i);
            for step in above {
                below.entry((*step, *layer)).or_insert(i);
            }
        }
    }
}

/// Numbers for dotted paths and their prefixes.
#[derive(Default)]
struct Paths {
    numbers: BTreeMap<String, usize>,
}

impl Paths {
    /// `a`, `a.b` and `a.b.c` for `a.b.c`.
    fn steps(&mut self, path: &str) -> Vec<usize> {
        let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
        ends.filter_map(|end| path.get(..end))
            .map(|prefix| {
                let next = self.numbers.len();
                *self.numbers.entry(prefix.to_owned()).or_insert(next)
            })
            .collect()
    }
}
