//! A body of the graph as the parameters and statements of one class.
//!
//! One line for each node that the outputs need; no variable hides a name that a line reads. Weights that only `linear`
//! multiplies by are modules, which adapters and quantizers replace.

use std::collections::{BTreeMap, BTreeSet};

use compiler::graph::{Body, Node, NodeKind, Out};
use compiler::op::{Arity, Attr, Attrs, AttrsExt, Primitive, Type};
use dsl::Problem;

use super::heads::AHEAD;
use super::{Class, Group, Head, Tensor, functions, heads};

/// A parameter's name and shape.
type NamedShape<'a> = (String, &'a [i64]);

/// Names in a generated `forward` that a variable must not take.
const RESERVED: [&str; 22] = [
    "F", "depth", "drops", "embeds", "held", "hidden", "kept", "layer", "math", "nn", "outside",
    "past", "position", "range", "self", "str", "tables", "terms", "tokens", "torch", "windows",
    "x",
];

/// What the statements are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Logits of tokens after a state, and the new state.
    Decoding,
    /// The training loss of whole windows.
    Training,
}

/// What the classes of one module have in common.
pub(super) struct Common<'a> {
    pub(super) form: Form,
    /// How weights of a group are used, by its name.
    pub(super) uses: &'a Uses,
    /// What a training layer gets besides the stream.
    pub(super) arguments: &'a str,
    /// Whether it returns auxiliary losses.
    pub(super) terms: bool,
    /// The arguments of each table of angles.
    pub(super) tables: &'a mut Vec<String>,
}

/// The attribute that holds a parameter's tensor, by its name.
#[derive(Clone, Debug)]
pub(super) enum Attribute {
    /// Declared by the class itself.
    OfClass(String),
    /// Declared by the class of a layer inside the model.
    OfLayer(String),
}

/// How statements use the weights of a group, by the group's name.
pub(super) type Uses = BTreeMap<String, BTreeSet<Use>>;

/// A use of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// `linear` without a bias.
    Linear,
    /// `linear` with the bias of the same group.
    LinearBias,
    /// The rows of token ids.
    Embed,
    /// Anything else.
    Other,
}

/// How a body's statements use its parameters, whose tensors have these names.
pub(super) fn uses(body: &Body, names: &[String], form: Form) -> Uses {
    let mut uses = Uses::new();
    collect_uses(body, names, form, &mut uses);
    uses
}

fn collect_uses(body: &Body, names: &[String], form: Form, uses: &mut Uses) {
    let name = |out: &Out| match body.nodes[out.node as usize].kind {
        NodeKind::Param(id) => names.get(id.0 as usize).map(String::as_str),
        NodeKind::Input(_)
        | NodeKind::Op { .. }
        | NodeKind::Slot { .. }
        | NodeKind::Layer { .. } => None,
    };
    let group = |out: &Out| name(out).and_then(|name| name.strip_suffix(".weight"));
    let mut add = |group: &str, kind| {
        uses.entry(group.to_owned()).or_default().insert(kind);
    };
    let mut outputs = body.outputs.clone();
    if form == Form::Training && is_model(body) {
        outputs.extend(heads::of(body).1.iter().map(|head| head.logits));
    }
    let all = needed(body, &outputs, form);
    for id in &all {
        let node = &body.nodes[*id as usize];
        let module = match (&node.kind, node.inputs.as_slice()) {
            (NodeKind::Op { primitive, .. }, [_, weight, bias @ ..])
                if primitive.name == "linear" =>
            {
                let in_group = |group: &&str| {
                    bias.iter().all(|bias| name(bias) == Some(format!("{group}.bias").as_str()))
                };
                let kind = if bias.is_empty() { Use::Linear } else { Use::LinearBias };
                group(weight).filter(in_group).map(|group| (group, kind))
            }
            (NodeKind::Op { primitive, .. }, [_, table]) if primitive.name == "embed" => {
                group(table).map(|group| (group, Use::Embed))
            }
            (
                NodeKind::Input(_)
                | NodeKind::Param(_)
                | NodeKind::Op { .. }
                | NodeKind::Slot { .. }
                | NodeKind::Layer { .. },
                _,
            ) => None,
        };
        match module {
            Some((group, kind)) => add(group, kind),
            None => node.inputs.iter().filter_map(group).for_each(|group| add(group, Use::Other)),
        }
    }
    for id in &all {
        if let NodeKind::Slot { fill, params, .. } = &body.nodes[*id as usize].kind {
            let inner: Vec<String> = params.iter().map(|id| names[id.0 as usize].clone()).collect();
            collect_uses(fill, &inner, form, uses);
        }
    }
}

/// The module of a group with these uses.
fn module(uses: &Uses, group: &str) -> Option<Use> {
    let kinds: Vec<Use> = uses.get(group)?.iter().copied().collect();
    match kinds.as_slice() {
        [kind @ (Use::Linear | Use::LinearBias)] => Some(*kind),
        // A head may multiply by the same table.
        kinds if kinds.contains(&Use::Embed) => Some(Use::Embed),
        _ => None,
    }
}

/// The module whose product the first output is, but for functions of each element.
pub(super) fn head(body: &Body, names: &[String], uses: &Uses) -> Option<String> {
    let mut node = &body.nodes[body.outputs.first()?.node as usize];
    loop {
        let NodeKind::Op { primitive, .. } = &node.kind else { return None };
        if primitive.name == "linear" {
            let NodeKind::Param(id) = body.nodes[node.inputs.get(1)?.node as usize].kind else {
                return None;
            };
            let group = names.get(id.0 as usize)?.strip_suffix(".weight")?;
            return module(uses, group).map(|_| group.to_owned());
        }
        node = &body.nodes[node.inputs.first()?.node as usize];
    }
}

/// The class of a body.
pub(super) fn class(
    name: &str,
    body: &Body,
    attributes: &[Attribute],
    common: &mut Common<'_>,
) -> Result<Class, Problem> {
    let Declared { own, groups, params } = Declared::new(body, attributes);
    let groups = groups
        .into_iter()
        .map(|(path, tensors)| Group {
            path: path.to_owned(),
            module: constructor(module(common.uses, path), &tensors),
        })
        .collect();
    let mut writer = Writer::new(is_chain(body), common);
    let mut inputs: Vec<String> = Vec::new();
    for ty in &body.inputs {
        inputs.push(match ty.tokens {
            true => "tokens".to_owned(),
            false if inputs.iter().all(|name| name != "x") => "x".to_owned(),
            false => writer.fresh("carried"),
        });
    }
    writer.input = if inputs.iter().any(|name| name == "x") { "x" } else { "tokens" };
    let (outputs, heads) = match writer.common.form {
        Form::Training if is_model(body) => heads::of(body),
        Form::Training | Form::Decoding => (body.outputs.clone(), Vec::new()),
    };
    let given = Given { inputs: &inputs, params: &params, states: &state_keys(body) };
    let outputs = writer.body(body, &outputs, given)?;
    let shapes = body.inputs.iter().map(Type::to_string);
    let reads = inputs.iter().zip(shapes).map(|(name, shape)| format!("{name} {shape}")).collect();
    let (lines, drops) = (std::mem::take(&mut writer.lines), std::mem::take(&mut writer.drops));
    let heads =
        heads.iter().map(|head| writer.head(body, head, given)).collect::<Result<_, _>>()?;
    let output = outputs.join(", ");
    Ok(Class { name: name.to_owned(), own, groups, inputs, reads, lines, output, drops, heads })
}

/// The expressions of what a body reads.
#[derive(Clone, Copy)]
struct Given<'a> {
    inputs: &'a [String],
    params: &'a [String],
    states: &'a [String],
}

/// The parameters of a class.
struct Declared<'a> {
    /// Attributes of the class itself.
    own: Vec<Tensor>,
    /// Groups inside it with their tensors, parents first.
    groups: Vec<(&'a str, Vec<NamedShape<'a>>)>,
    /// The expression of each parameter.
    params: Vec<String>,
}

impl<'a> Declared<'a> {
    fn new(body: &'a Body, attributes: &'a [Attribute]) -> Declared<'a> {
        let mut declared = Declared { own: Vec::new(), groups: Vec::new(), params: Vec::new() };
        for (param, attribute) in body.params.iter().zip(attributes) {
            let (Attribute::OfClass(name) | Attribute::OfLayer(name)) = attribute;
            declared.params.push(format!("self.{name}"));
            if let Attribute::OfClass(name) = attribute {
                declared.add(name, &param.shape);
            }
        }
        declared
    }

    fn add(&mut self, name: &'a str, shape: &'a [i64]) {
        let Some((path, name)) = name.rsplit_once('.') else {
            self.own.push(Tensor { name: name.to_owned(), shape: shape.to_vec() });
            return;
        };
        for parent in parents(path) {
            if self.groups.iter().all(|(known, _)| *known != parent) {
                self.groups.push((parent, Vec::new()));
            }
        }
        if let Some((_, tensors)) = self.groups.iter_mut().find(|(known, _)| *known == path) {
            tensors.push((name.to_owned(), shape));
        }
    }
}

/// The call that makes the module of a group.
fn constructor(module: Option<Use>, tensors: &[NamedShape<'_>]) -> String {
    match (module, tensors) {
        (Some(Use::Linear), [(_, [out, width])]) => format!("Linear({width}, {out})"),
        (Some(Use::LinearBias), [(_, [out, width]), _]) => {
            format!("Linear({width}, {out}, bias=True)")
        }
        (Some(Use::Embed), [(_, [rows, width])]) => format!("Embedding({rows}, {width})"),
        (_, tensors) => {
            let all = tensors.iter().map(|(name, shape)| format!("{name}={shape:?}"));
            format!("Parameters({})", all.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The keys of a body's states. Two calls without instance names have states of one path: each needs a key of its own.
fn state_keys(body: &Body) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for (path, _) in &body.states {
        let mut key = path.clone();
        let mut count = 1;
        while keys.contains(&key) {
            count += 1;
            key = format!("{path}_{count}");
        }
        keys.push(key);
    }
    keys
}

/// `a.b.c` as `a`, `a.b`, `a.b.c`.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    let dots = path.match_indices('.').map(|(at, _)| at);
    dots.chain([path.len()]).map(move |end| &path[..end])
}

/// The statements of one `forward`.
struct Writer<'a, 'b> {
    lines: Vec<String>,
    taken: BTreeSet<String>,
    /// One of the class's inputs.
    input: &'static str,
    common: &'a mut Common<'b>,
    /// Whether each layer reads the one before it alone.
    chain: bool,
    /// The paths of calls that drop elements, below the layer.
    drops: Vec<String>,
}

/// Whether a body is a whole model: token ids alone go in.
fn is_model(body: &Body) -> bool {
    matches!(body.inputs.as_slice(), [ty] if ty.tokens)
}

/// Whether only the stream passes from layer to layer.
fn is_chain(top: &Body) -> bool {
    top.nodes.iter().all(|node| match &node.kind {
        NodeKind::Layer { body, .. } => {
            node.types.len() == 1 && matches!(body.inputs.as_slice(), [ty] if !ty.tokens)
        }
        NodeKind::Input(_) | NodeKind::Param(_) | NodeKind::Op { .. } | NodeKind::Slot { .. } => {
            true
        }
    })
}

impl<'a, 'b> Writer<'a, 'b> {
    fn new(chain: bool, common: &'a mut Common<'b>) -> Writer<'a, 'b> {
        let names = RESERVED.into_iter().chain(functions::names());
        let taken = names.map(str::to_owned).collect();
        Writer { lines: Vec::new(), taken, input: "x", common, chain, drops: Vec::new() }
    }

    /// A variable's name that starts with `wanted` and is not taken.
    fn fresh(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let mut count = 1;
        while !self.taken.insert(name.clone()) {
            count += 1;
            name = format!("{wanted}_{count}");
        }
        name
    }

    fn push(&mut self, statement: String, types: &[Type]) {
        let types: Vec<String> = types.iter().map(Type::to_string).collect();
        self.lines.push(format!("{statement}  # {}", types.join(", ")));
    }

    /// Writes the nodes that these outputs need; returns the outputs' expressions.
    fn body(
        &mut self,
        body: &Body,
        outputs: &[Out],
        given: Given<'_>,
    ) -> Result<Vec<String>, Problem> {
        let needed = needed(body, outputs, self.common.form);
        let mut values: Vec<Vec<String>> = vec![Vec::new(); body.nodes.len()];
        self.nodes(body, &needed, given, &mut values)?;
        Ok(outputs.iter().map(|out| expression(&values, *out)).collect())
    }

    /// Writes these nodes of a body, and puts the expressions of their results into `values`.
    fn nodes(
        &mut self,
        body: &Body,
        wanted: &BTreeSet<u32>,
        given: Given<'_>,
        values: &mut [Vec<String>],
    ) -> Result<(), Problem> {
        for node in body.reachable().into_iter().filter(|node| wanted.contains(node)) {
            let at = &body.nodes[node as usize];
            let operands: Vec<String> =
                read(at, self.common.form).iter().map(|out| expression(values, *out)).collect();
            values[node as usize] = match &at.kind {
                NodeKind::Input(index) => vec![given.inputs[*index as usize].clone()],
                NodeKind::Param(id) => vec![given.params[id.0 as usize].clone()],
                NodeKind::Op { primitive, attrs, .. } if AUXILIARY.contains(&primitive.name) => {
                    self.auxiliary(primitive, attrs, operands)
                }
                NodeKind::Op { primitive, attrs, state } => {
                    let state = state.map(|id| given.states[id.0 as usize].as_str());
                    self.call(primitive, attrs, state, at, &operands)?
                }
                NodeKind::Slot { name, fill, params: inner, states: kept } => {
                    let params: Vec<String> =
                        inner.iter().map(|id| given.params[id.0 as usize].clone()).collect();
                    let states: Vec<String> =
                        kept.iter().map(|id| given.states[id.0 as usize].clone()).collect();
                    self.lines.push(format!("# Slot {name}:"));
                    self.slot(fill, at, &operands, &params, &states)?
                }
                NodeKind::Layer { index, .. } => {
                    let results = self.layer(*index, at, &operands)?;
                    let later = body.nodes.iter().any(|node| {
                        matches!(&node.kind, NodeKind::Layer { index: layer, .. } if layer > index)
                    });
                    if !later && self.common.form == Form::Decoding {
                        self.lines.push("if hidden is not None:".to_owned());
                        self.lines.push(format!("    hidden.append({})", results[0]));
                    }
                    results
                }
            };
        }
        Ok(())
    }

    /// The function from a head's inputs to its logits.
    fn head(&mut self, body: &Body, head: &heads::Head, given: Given<'_>) -> Result<Head, Problem> {
        let mut values: Vec<Vec<String>> = vec![Vec::new(); body.nodes.len()];
        let mut inputs = Vec::new();
        for cut in &head.inputs {
            let name = self.fresh("h");
            let results = &mut values[cut.node as usize];
            results.resize(results.len().max(cut.port as usize + 1), name.clone());
            results[cut.port as usize].clone_from(&name);
            inputs.push(name);
        }
        self.nodes(body, &head.nodes, given, &mut values)?;
        Ok(Head {
            ahead: head.ahead,
            first: head.first,
            inputs,
            lines: std::mem::take(&mut self.lines),
            output: expression(&values, head.logits),
        })
    }

    /// A call that passes its first operand on, and is a part of the training loss.
    fn auxiliary(
        &mut self,
        primitive: &Primitive,
        attrs: &Attrs,
        operands: Vec<String>,
    ) -> Vec<String> {
        let [result, means @ ..] = operands.as_slice() else { return operands };
        if self.common.form == Form::Training && primitive.name == "aux_loss" {
            let (term, means) = (attrs.word("term"), means.join(", "));
            self.lines.push(format!("terms[{term:?}] = terms[{term:?}] + mean_product({means})"));
        }
        vec![result.clone()]
    }

    /// A call whose expression depends on the form of the module, or on tables that all layers share.
    fn special(
        &mut self,
        primitive: &Primitive,
        attrs: &Attrs,
        operands: &[String],
    ) -> Option<String> {
        let operand = operands.first()?;
        match (primitive.name, self.common.form) {
            ("rope", _) => {
                let own = |name: &str| python(&attrs[name]);
                let table = attrs.iter().filter(|(name, _)| **name != "layout");
                let table: Vec<String> =
                    table.map(|(name, value)| format!("{name}={}", python(value))).collect();
                let table = table.join(", ");
                let known = self.common.tables.iter().position(|known| *known == table);
                let index = known.unwrap_or_else(|| {
                    self.common.tables.push(table);
                    self.common.tables.len() - 1
                });
                let (layout, dims) = (own("layout"), own("dims"));
                Some(format!("rope({operand}, tables[{index}], layout={layout}, dims={dims})"))
            }
            ("dropout", Form::Training) => {
                if attrs.decimal("rate").is_zero() {
                    return Some(operand.clone());
                }
                self.drops.push(attrs.path("at").map_or_else(String::new, |at| at.to_string()));
                let (rate, index) = (python(&attrs["rate"]), self.drops.len() - 1);
                let drawn = format!("keyed_dropout({operand}, {rate}, drops[{index}], windows)");
                Some(format!("{drawn} if self.training else {operand}"))
            }
            _ => None,
        }
    }

    fn call(
        &mut self,
        primitive: &Primitive,
        attrs: &Attrs,
        state: Option<&str>,
        node: &Node,
        operands: &[String],
    ) -> Result<Vec<String>, Problem> {
        let special = self.special(primitive, attrs, operands);
        let module_call = special.or_else(|| self.module_call(primitive, operands));
        let call = match module_call.as_deref().or(primitive.torch) {
            // `torch.split` returns a tuple, even of one.
            Some(text) if primitive.name == "split" && node.types.len() == 1 => {
                filled(text, operands, attrs) + "[0]"
            }
            Some(text) if module_call.is_some() => text.to_owned(),
            Some(text) => filled(text, operands, attrs),
            None if functions::has(primitive.name) => {
                let mut arguments = operands.to_vec();
                if primitive.tensors == Arity::Exactly(0) {
                    // A constant is where the class's input is.
                    arguments.push(format!("like={}", self.input));
                }
                arguments
                    .extend(attrs.iter().map(|(name, value)| format!("{name}={}", python(value))));
                if let Some(state) = state.filter(|_| self.common.form == Form::Decoding) {
                    arguments.push(format!("past=past.get({state:?})"));
                }
                format!("{}({})", primitive.name, arguments.join(", "))
            }
            None => {
                return Err(Problem::in_file(
                    primitive.name,
                    "canonc has no PyTorch function for this primitive",
                    "export `--to card`, or express it with other primitives",
                ));
            }
        };
        // An instance with a weight gives its name to its result: `wq`, `pre_mixer`.
        let instance = operands.iter().find_map(|operand| {
            operand.strip_prefix("self.")?.strip_suffix(".weight")?.rsplit('.').next()
        });
        let wanted = instance.unwrap_or(match primitive.name {
            "add" | "mul" | "scale" => "y",
            name => name,
        });
        let results: Vec<String> = node.types.iter().map(|_| self.fresh(wanted)).collect();
        let mut targets = results.clone();
        targets.extend(state.map(|state| match self.common.form {
            Form::Decoding => format!("kept[{state:?}]"),
            Form::Training => "_".to_owned(),
        }));
        self.push(format!("{} = {call}", targets.join(", ")), &node.types);
        Ok(results)
    }

    /// The operands side by side, through the fill, cut again.
    fn slot(
        &mut self,
        fill: &Body,
        node: &Node,
        operands: &[String],
        params: &[String],
        states: &[String],
    ) -> Result<Vec<String>, Problem> {
        if let [operand] = operands {
            let inputs = std::slice::from_ref(operand);
            return self.body(fill, &fill.outputs, Given { inputs, params, states });
        }
        let joined = self.fresh("whole");
        self.push(format!("{joined} = torch.cat([{}], dim=-1)", operands.join(", ")), &fill.inputs);
        let inputs = &[joined];
        let filled = self.body(fill, &fill.outputs, Given { inputs, params, states })?;
        let widths: Vec<String> = node
            .types
            .iter()
            .map(|ty| ty.dims.last().copied().unwrap_or_default().to_string())
            .collect();
        let results: Vec<String> = node.types.iter().map(|_| self.fresh("part")).collect();
        let call = format!("torch.split({}, [{}], dim=-1)", filled.join(", "), widths.join(", "));
        self.push(format!("{} = {call}", results.join(", ")), &node.types);
        Ok(results)
    }

    /// A call of the module that has the weight.
    fn module_call(&self, primitive: &Primitive, operands: &[String]) -> Option<String> {
        let [input, weight, ..] = operands else { return None };
        let group = weight.strip_prefix("self.")?.strip_suffix(".weight")?;
        let embeds = self.common.form == Form::Decoding && self.input == "tokens";
        match (primitive.name, module(self.common.uses, group)?) {
            ("embed", Use::Embed) if group == "embed" && embeds => {
                Some(format!("self.embed({input}) if embeds is None else embeds"))
            }
            ("linear", Use::Linear | Use::LinearBias) | ("embed", Use::Embed) => {
                Some(format!("self.{group}({input})"))
            }
            _ => None,
        }
    }

    /// As [`Writer::layer`], without states.
    fn training_layer(
        &mut self,
        index: u32,
        node: &Node,
        operands: &[String],
    ) -> Result<Vec<String>, Problem> {
        let (arguments, terms) = (self.common.arguments, self.common.terms);
        let results: Vec<String> = match self.chain {
            true => vec!["x".to_owned()],
            false => node.types.iter().map(|_| self.fresh("carried")).collect(),
        };
        let targets = results.join(", ") + if terms { ", terms" } else { "" };
        if !self.chain {
            let inputs = operands.join(", ");
            let call = format!("{targets} = self.layer({index}, {inputs}{arguments})");
            self.push(call.replace("depth", &index.to_string()), &node.types);
        } else if index == 0 {
            self.lines.extend(operands.iter().map(|first| format!("x = {first}")));
            self.lines.push("for depth in range(self.depth):".to_owned());
            self.push(format!("    {targets} = self.layer(depth, x{arguments})"), &node.types);
        }
        Ok(results)
    }

    /// The layers are a chain, which is one loop, written at the first of them; or more than the stream passes between
    /// them, and each has a call.
    fn layer(
        &mut self,
        index: u32,
        node: &Node,
        operands: &[String],
    ) -> Result<Vec<String>, Problem> {
        if self.common.form == Form::Training {
            return self.training_layer(index, node, operands);
        }
        if !self.chain {
            let results: Vec<String> = (0..node.types.len())
                .map(|port| match port {
                    0 => self.fresh(&format!("layer_{index}")),
                    _ => self.fresh(&format!("carried_{index}")),
                })
                .collect();
            let (outputs, inputs) = (results.join(", "), operands.join(", "));
            let call = format!("self.layer({index}, hidden, {inputs}, past.get({index}), tables)");
            self.push(format!("{outputs}, kept[{index}] = {call}"), &node.types);
            return Ok(results);
        }
        match (index, operands) {
            (0, [first]) => {
                self.lines.push(format!("x = {first}"));
                self.lines.push("for depth in range(self.depth):".to_owned());
                let call =
                    "    x, kept[depth] = self.layer(depth, hidden, x, past.get(depth), tables)";
                self.push(call.to_owned(), &node.types);
            }
            (1.., [x]) if x == "x" => {}
            (_, operands) => {
                return Err(Problem::in_file(
                    "",
                    format!(
                        "layer {index} does not follow layer {} alone: it reads {}",
                        index.saturating_sub(1),
                        operands.join(", ")
                    ),
                    "this is a bug in canonc",
                ));
            }
        }
        Ok(vec!["x".to_owned()])
    }
}

/// The primitives that return their first operand and read the others for the training loss alone.
const AUXILIARY: [&str; 2] = [AHEAD, "aux_loss"];

/// The nodes that these outputs need; when decoding, without those that only the training loss needs.
pub(super) fn needed(body: &Body, outputs: &[Out], form: Form) -> BTreeSet<u32> {
    let mut needed = BTreeSet::new();
    let mut left: Vec<u32> = outputs.iter().map(|out| out.node).collect();
    while let Some(node) = left.pop() {
        if needed.insert(node) {
            left.extend(read(&body.nodes[node as usize], form).iter().map(|out| out.node));
        }
    }
    needed
}

/// The operands that a node's results, and in training its part of the loss, depend on. Heads of later tokens are apart.
fn read(node: &Node, form: Form) -> &[Out] {
    match &node.kind {
        NodeKind::Op { primitive, .. }
            if primitive.name == AHEAD
                || form == Form::Decoding && AUXILIARY.contains(&primitive.name) =>
        {
            node.inputs.get(..1).unwrap_or_default()
        }
        NodeKind::Op { .. }
        | NodeKind::Input(_)
        | NodeKind::Param(_)
        | NodeKind::Slot { .. }
        | NodeKind::Layer { .. } => &node.inputs,
    }
}

fn expression(values: &[Vec<String>], out: Out) -> String {
    values[out.node as usize][out.port as usize].clone()
}

/// An expression with its operands and configuration in place.
fn filled(text: &str, operands: &[String], attrs: &Attrs) -> String {
    let mut filled = text.to_owned();
    for (index, operand) in operands.iter().enumerate() {
        filled = filled.replace(&format!("{{{index}}}"), operand);
    }
    for (name, value) in attrs {
        filled = filled.replace(&format!("{{{name}}}"), &python(value));
    }
    filled
}

/// A value as Python writes it.
fn python(value: &Attr) -> String {
    match value {
        Attr::Int(n) => n.to_string(),
        Attr::Decimal(d) => format!("{:?}", d.to_f64()),
        Attr::Root(root) => format!("{:?}", root.to_f64()),
        Attr::Bool(true) => "True".to_owned(),
        Attr::Bool(false) => "False".to_owned(),
        Attr::Word(word) => format!("{word:?}"),
        Attr::Path(path) => format!("{path:?}"),
        Attr::Ints(ns) => format!("{ns:?}"),
        Attr::None => "None".to_owned(),
    }
}
