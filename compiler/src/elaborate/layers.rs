//! The list of layers: each distinct layer is elaborated once, then placed. Layers of one `share` are one instance,
//! with the same parameters everywhere and a state for each place.

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::Span;

use super::building::Passing;
use super::{Building, Elaborator, Field, MAX_FIELDS, MAX_NODES, MAX_PATHS, MAX_TENSORS, join};
use crate::diag;
use crate::graph::{Body, NodeKind, Out, Param, ParamId};
use crate::op::Type;
use crate::tree::Applied;

/// A layer elaborated once, for all equal layers.
struct LayerBody {
    body: Rc<Body>,
    fields: Vec<Field>,
    /// The total length of the paths in both.
    letters: usize,
    /// The tensors that pass between layers: the names of the inputs and of the results after the first.
    reads: Vec<String>,
    writes: Vec<String>,
}

/// Layers elaborated so far: by their address in the tree, and, if they ask for tensors that pass between layers, by what
/// they were given.
type Memo = BTreeMap<(*const Applied, Option<usize>), Option<Rc<LayerBody>>>;

/// The tensors that pass from layer to layer in addition to the stream.
#[derive(Default)]
struct Passed {
    now: BTreeMap<String, Out>,
    /// Their types, each time these changed.
    given: Vec<BTreeMap<String, Type>>,
}

impl Passed {
    /// The types now, and their number.
    fn types(&mut self, top: &Building) -> (BTreeMap<String, Type>, usize) {
        let types: BTreeMap<String, Type> =
            self.now.iter().map(|(name, out)| (name.clone(), top.body.ty(*out).clone())).collect();
        let number = self.given.iter().position(|known| *known == types).unwrap_or_else(|| {
            self.given.push(types.clone());
            self.given.len() - 1
        });
        (types, number)
    }
}

/// The first place of a shared layer, and the parameters it owns there.
struct Owner {
    index: usize,
    body: Rc<Body>,
    params: Vec<ParamId>,
}

impl Elaborator<'_> {
    pub(super) fn layers(&mut self, top: &mut Building, mut x: Out, dim: i64) -> Option<Out> {
        let tree = self.tree;
        let mut memo = Memo::new();
        let mut passed = Passed { now: top.passing.take().unwrap_or_default().now, given: vec![] };
        let mut owners: BTreeMap<u32, Owner> = BTreeMap::new();
        let count = tree.layers.len().to_string();
        let path = "layers".to_owned();
        top.add_field(Field { path, value: count, written: true, span: tree.span });
        let mut failed = false;
        for (index, layer) in tree.layers.iter().enumerate() {
            let (given, number) = passed.types(top);
            let address = Rc::as_ptr(&layer.applied);
            let known = memo.get(&(address, None)).or_else(|| memo.get(&(address, Some(number))));
            let known = known.cloned();
            let elaborated = match known {
                Some(known) => known,
                None => {
                    self.uses_layer = false;
                    self.layer = Some(index as i64);
                    let before = self.diagnostics.len();
                    let mut used = false;
                    let body = self.layer_body(&layer.applied, dim, given, &mut used).map(Rc::new);
                    self.point_at_layer(before, layer.applied.span);
                    self.say_once(before);
                    self.layer = None;
                    if !self.uses_layer || body.is_none() {
                        memo.insert((address, used.then_some(number)), body.clone());
                    }
                    body
                }
            };
            let Some(elaborated) = elaborated else {
                failed = true;
                continue;
            };
            let owner = layer.share.and_then(|group| owners.get(&group));
            let passed = &mut passed.now;
            x = self.place_layer(top, (x, passed), index, owner, &layer.applied, &elaborated)?;
            if let Some(group) = layer.share
                && let Some(NodeKind::Layer { body, params, .. }) =
                    top.body.nodes.last().map(|n| &n.kind)
            {
                let (body, params) = (body.clone(), params.clone());
                owners.entry(group).or_insert(Owner { index, body, params });
            }
        }
        top.passing = Some(Passing { now: passed.now, ..Passing::default() });
        (!failed).then_some(x)
    }

    fn place_layer(
        &mut self,
        top: &mut Building,
        (x, passed): (Out, &mut BTreeMap<String, Out>),
        index: usize,
        owner: Option<&Owner>,
        applied: &Rc<Applied>,
        elaborated: &LayerBody,
    ) -> Option<Out> {
        let span = applied.span;
        let body = &elaborated.body;
        let layer_path = format!("layers.{index}");
        self.count_layer(top, elaborated, &layer_path, span)?;
        let params: Vec<ParamId> = match owner {
            None => body
                .params
                .iter()
                .map(|param| {
                    top.place_param(
                        Param { path: join(&layer_path, &param.path), ..param.clone() },
                        span,
                    )
                })
                .collect(),
            Some(owner) => {
                let Some(params) = owned_by(owner, body) else {
                    self.diagnostics.push(diag::shared_layers_differ(span, owner.index, index));
                    return None;
                };
                params
            }
        };
        let mut states = Vec::with_capacity(body.states.len());
        for (path, state) in &body.states {
            states.push(top.add_state(join(&layer_path, path), state.clone()));
        }
        let written = |path: String, value: String| Field { path, value, written: true, span };
        top.fields.push(written(layer_path.clone(), applied.name().to_owned()));
        if let Some(owner) = owner {
            top.fields.push(written(format!("{layer_path}.share"), owner.index.to_string()));
        }
        for field in &elaborated.fields {
            top.fields.push(Field { path: join(&layer_path, &field.path), ..field.clone() });
        }
        let types = body.outputs.iter().map(|out| body.ty(*out).clone()).collect();
        let kind = NodeKind::Layer { index: index as u32, body: body.clone(), params, states };
        let carried = elaborated.reads.iter().filter_map(|name| passed.get(name)).copied();
        let inputs = [x].into_iter().chain(carried).collect();
        let node = top.body.push(kind, inputs, types, span);
        for (port, name) in (1..).zip(&elaborated.writes) {
            passed.insert(name.clone(), Out { node, port });
        }
        Some(Out::first(node))
    }

    /// Counts what a layer adds to the graph; `None` once a bound was exceeded.
    fn count_layer(
        &mut self,
        top: &Building,
        layer: &LayerBody,
        layer_path: &str,
        span: Span,
    ) -> Option<()> {
        let body = &layer.body;
        self.nodes += body.nodes.len();
        let tensors =
            top.body.params.len() + top.body.states.len() + body.params.len() + body.states.len();
        let exceeded = if self.nodes > MAX_NODES && !self.open {
            // Empty slots do not count, so that every arch that elaborates has an open form.
            ("nodes", MAX_NODES)
        } else if tensors > MAX_TENSORS {
            ("parameters and states", MAX_TENSORS)
        } else if top.fields.len() + layer.fields.len() > MAX_FIELDS {
            ("configuration values", MAX_FIELDS)
        } else {
            self.paths +=
                layer.letters + layer_path.len() * (body.params.len() + layer.fields.len());
            if self.paths <= MAX_PATHS {
                return Some(());
            }
            ("letters in their paths", MAX_PATHS)
        };
        self.diagnostics.push(diag::too_many(span, exceeded.0, exceeded.1));
        None
    }

    fn layer_body(
        &mut self,
        applied: &Rc<Applied>,
        dim: i64,
        given: BTreeMap<String, Type>,
        used: &mut bool,
    ) -> Option<LayerBody> {
        let mut b = Building::default();
        b.passing = Some(Passing { given, ..Passing::default() });
        let ty = Type::seq([dim]);
        b.body.inputs.push(ty.clone());
        let x = b.body.push(NodeKind::Input(0), vec![], vec![ty.clone()], applied.span);
        let outs = self.holder_call(&mut b, applied, Out::first(x), "", Some(""));
        let passing = b.passing.take().unwrap_or_default();
        *used = passing.used;
        let outs = outs?;
        match outs.as_slice() {
            [out] if *b.body.ty(*out) == ty => {}
            outs => {
                let got = super::shown(&b.body, outs);
                let want = ty.to_string();
                self.diagnostics.push(diag::layer_result(
                    applied.span,
                    applied.name(),
                    &got,
                    &want,
                ));
                return None;
            }
        }
        b.body.outputs = outs;
        let Passing { now, read: reads, .. } = passing;
        let mut writes = Vec::new();
        for (name, out) in now {
            let node = b.body.nodes.get(out.node as usize).map(|node| &node.kind);
            let given = reads.iter().position(|read| *read == name).map(|at| at as u32 + 1);
            if !matches!(node, Some(NodeKind::Input(number)) if Some(*number) == given) {
                b.body.outputs.push(out);
                writes.push(name);
            }
        }
        let (body, fields) = self.finish(b);
        let letters = body.params.iter().map(|p| p.path.len()).sum::<usize>()
            + body.states.iter().map(|(path, _)| path.len()).sum::<usize>()
            + fields.iter().map(|f| f.path.len() + f.value.len()).sum::<usize>();
        Some(LayerBody { body: Rc::new(body), fields, letters, reads, writes })
    }
}

/// The owner's parameter for each of the body's, matched by path. `layer` may change the computation of a
/// shared layer and the order of its declarations, but not which parameters it owns.
fn owned_by(owner: &Owner, body: &Body) -> Option<Vec<ParamId>> {
    if owner.body.params.len() != body.params.len() {
        return None;
    }
    let ids = owner.body.params.iter().zip(&owner.params);
    let known: BTreeMap<&str, (&Param, ParamId)> =
        ids.map(|(param, id)| (param.path.as_str(), (param, *id))).collect();
    let matching = |param: &Param| {
        let (theirs, id) = known.get(param.path.as_str())?;
        (theirs.shape == param.shape && theirs.init == param.init).then_some(*id)
    };
    body.params.iter().map(matching).collect()
}
