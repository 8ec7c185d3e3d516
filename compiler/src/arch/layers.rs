//! Expands layer lists and finds the layers that a path selects. The count is checked before the list is built; an
//! empty selection is an error, never an edit that silently does nothing.

use dsl::limits::MAX_ERRORS;
use dsl::{ExprKind, FileId, LayerList, LayerWhat, Select, Span};

use super::Builder;
use crate::diag;
use crate::tree::{ArchTree, Layer, MAX_LAYERS};

impl Builder<'_> {
    pub(super) fn layer_list(
        &mut self,
        file: FileId,
        list: &LayerList,
        out: &mut Vec<Layer>,
    ) -> Option<()> {
        let count = match &list.count {
            None => 1,
            Some(expr) => match expr.kind {
                ExprKind::Int(n) => n,
                _ => {
                    self.diagnostics.push(diag::layer_count_not_a_number(expr.span));
                    return None;
                }
            },
        };
        let count = usize::try_from(count).ok().filter(|n| *n <= MAX_LAYERS);
        let Some(count) = count else {
            self.diagnostics.push(diag::too_many_layers(list.span, MAX_LAYERS));
            return None;
        };
        let mut once = Vec::new();
        match &list.what {
            LayerWhat::One { share, layer } => {
                if let (None, ExprKind::Int(n)) = (&list.count, &layer.kind) {
                    let n = *n;
                    self.diagnostics.push(diag::layers_of_what(layer.span, n));
                    return None;
                }
                let applied = self.definition(file, layer, 0)?;
                let share = share.then(|| {
                    self.groups += 1;
                    self.groups
                });
                once.push(Layer { applied, share });
            }
            LayerWhat::List(items) => {
                for item in items {
                    if self.diagnostics.len() > MAX_ERRORS {
                        return None;
                    }
                    self.layer_list(file, item, &mut once)?;
                }
            }
        }
        if out.len().saturating_add(once.len().saturating_mul(count)) > MAX_LAYERS {
            self.diagnostics.push(diag::too_many_layers(list.span, MAX_LAYERS));
            return None;
        }
        for _ in 0..count {
            out.extend(once.iter().cloned());
        }
        Some(())
    }

    pub(super) fn select(
        &mut self,
        tree: &ArchTree,
        file: FileId,
        select: &Select,
        span: Span,
    ) -> Option<Vec<usize>> {
        let count = tree.layers.len();
        let position = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(count);
        let selected: Vec<usize> = match select {
            Select::All => (0..count).collect(),
            Select::Index(i) => (position(*i)..position(i.saturating_add(1))).collect(),
            Select::Range(from, to) => {
                if *to > count as u64 {
                    self.diagnostics.push(diag::layer_out_of_range(span, *to, count));
                    return None;
                }
                (position(*from)..position(*to)).collect()
            }
            // The parser has refused a step of 0.
            Select::Every { step, from } => {
                (position(*from)..count).step_by(position(*step).max(1)).collect()
            }
            Select::Is { path, def } => {
                self.reach(count, span)?;
                let Some(wanted) = self.named(file, &def.text, def.span, 0) else {
                    self.diagnostics.push(diag::not_a_definition(def.span));
                    return None;
                };
                let mut selected = Vec::new();
                for (n, layer) in tree.layers.iter().enumerate() {
                    let mut part = layer.applied.clone();
                    let exists = path.iter().all(|name| match self.child(&part, &name.text) {
                        Ok(child) => {
                            part = child;
                            true
                        }
                        Err(_) => false,
                    });
                    if exists && part.callee.same(&wanted.callee) {
                        selected.push(n);
                    }
                }
                selected
            }
        };
        if selected.is_empty() {
            self.diagnostics.push(diag::selects_nothing(span, count));
            return None;
        }
        Some(selected)
    }
}
