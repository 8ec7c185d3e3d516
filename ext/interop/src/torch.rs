//! An architecture as one file of plain PyTorch, generated from its graph.
//!
//! The module computes the graph, node by node, and only needs PyTorch; each primitive is one function, in the file of its
//! name under `ext/interop/torch/`. Tests compare logits, gradients and decoding with ours.

mod functions;
mod names;
mod masters;
mod heads;
mod body;

use std::collections::BTreeSet;
use std::rc::Rc;

use compiler::graph::{Body, Graph, Param, ParamId};
use compiler::number::{InitRule, Root};
use compiler::plan::MEANS;
use compiler::program::Compiled;
use dsl::Problem;
use lab::experiment::Experiment;
use serde::Serialize;

use self::body::{Attribute, Common, Uses};

pub use body::Form;
pub use masters::kept_in_f32;
pub use names::tensor_names;

/// The names in a folder for `transformers`, as in the template `modeling.py.j2`.
#[derive(Debug)]
pub struct Classes {
    /// The file, without its ending.
    pub file: &'static str,
    /// The class of the configuration.
    pub config: &'static str,
    /// The class of the model.
    pub model: &'static str,
    /// The text before the name of a tensor.
    pub prefix: &'static str,
}

/// The names in a folder for `transformers`.
pub const CLASSES: Classes = Classes {
    file: "modeling_canonc",
    config: "CanoncConfig",
    model: "CanoncForCausalLM",
    prefix: "model.",
};

/// `model_type` in the configuration of such a folder.
pub const MODEL_TYPE: &str = "canonc";

/// One generated module, for the template `model.py.j2`.
#[derive(Debug, Serialize)]
pub struct Module {
    name: String,
    docs: Vec<String>,
    id: String,
    vocab: i64,
    dim: i64,
    parameters: i64,
    /// Whether it has dropout.
    drops: bool,
    /// Texts of the functions that it calls.
    functions: Vec<&'static str>,
    classes: Vec<Class>,
    /// A list of each layer's class, as Python.
    kinds: String,
    /// For each layer the one that owns its module, if layers are shared.
    places: Option<Vec<u32>>,
    /// The arguments of each table of angles.
    tables: Vec<String>,
    /// For training: the parameters of a layer's `forward` besides its inputs, and the auxiliary losses that are means.
    arguments: String,
    means: Vec<&'static str>,
    /// What its training leaves out, and the factors of nll² and lse² in the lock's loss.
    left_out: Vec<String>,
    squares: Option<[f64; 2]>,
    /// The names of parameters that keep f32 where the rest is bf16, below their layer.
    kept_in_f32: Vec<String>,
    /// For each layer, and last for the model outside of them, the paths of calls that drop elements.
    drops_at: Vec<Vec<String>>,
    /// Whether layers that share parameters differ in their statements.
    mixed: bool,
    depth: usize,
    /// Whether more than the table's rows depends on token ids.
    reads_ids: bool,
    /// The module that computes logits.
    head: Option<String>,
    top: Class,
    init: Vec<Init>,
}

/// A class with parameters and the statements of its `forward`.
#[derive(Debug, Serialize)]
struct Class {
    name: String,
    /// Its own parameters.
    own: Vec<Tensor>,
    /// Groups of parameters inside it, parents first.
    groups: Vec<Group>,
    /// Names of the inputs, and the same with their shapes.
    inputs: Vec<String>,
    reads: Vec<String>,
    lines: Vec<String>,
    output: String,
    /// The paths of the calls that drop elements, below the layer.
    drops: Vec<String>,
    /// For training, the functions to logits.
    heads: Vec<Head>,
}

/// The function from some hidden values to the logits of the token that is `ahead` places on.
#[derive(Debug, Serialize)]
struct Head {
    ahead: i64,
    /// The number of hidden values before its own.
    first: usize,
    inputs: Vec<String>,
    lines: Vec<String>,
    output: String,
}

#[derive(Debug, Serialize)]
struct Group {
    path: String,
    /// The call that makes it.
    module: String,
}

#[derive(Debug, Serialize)]
struct Tensor {
    name: String,
    shape: Vec<i64>,
}

/// The initial distribution of the parameters with a name, in which `*` is the number of any layer.
#[derive(Debug, Serialize)]
struct Init {
    name: String,
    rule: String,
}

impl Module {
    /// Whether its loss has means over the tokens of a micro-batch.
    pub(crate) fn has_means(&self) -> bool {
        !self.means.is_empty()
    }
}

/// The module of an architecture.
pub fn module(
    compiled: &Compiled,
    form: Form,
    experiment: Option<&Experiment>,
) -> Result<Module, Problem> {
    let graph = &compiled.graph;
    let names = tensor_names(graph.params());
    let means: Vec<&str> = MEANS.into_iter().filter(|term| graph.has_term(term)).collect();
    let arguments = arguments(graph, &means);
    let mut tables = Vec::new();
    let passed = Passed { form, arguments: &arguments, terms: !means.is_empty() };
    let Layers { classes, kinds, owners } = layers(&compiled.name, graph, passed, &mut tables)?;
    let differs = |(kind, owner): (&String, &u32)| kinds.get(*owner as usize) != Some(kind);
    let mixed = kinds.iter().zip(&owners).any(differs);
    if mixed && form == Form::Training {
        return Err(Problem::in_file(
            &compiled.name,
            "layers that share their parameters differ in what they compute, which PyTorch cannot shard",
            "train it with canonc, or give these layers parameters of their own",
        ));
    }
    let uses = body::uses(&graph.top, &names, form);
    let mut common = passed.common(&uses, &mut tables);
    let top = body::class("Model", &graph.top, &top_attributes(graph, &names), &mut common)?;
    let squares = experiment.and_then(squares);
    let used = |function: &str| {
        let all = classes.iter().chain([&top]);
        let heads = top.heads.iter().flat_map(|head| &head.lines);
        let mut lines = all.flat_map(|class| &class.lines).chain(heads);
        // The loss of any model is computed in f32.
        function == "wide"
            || function == "summed_loss" && (form == Form::Training || squares.is_some())
            || function == "rope_table" && !tables.is_empty()
            || lines.any(|line| functions::calls(line, function))
    };
    let shared = are_shared(&owners);
    Ok(Module {
        name: compiled.name.clone(),
        docs: compiled.docs.clone(),
        id: compiled.identity.graph.to_string(),
        vocab: graph.vocab,
        dim: graph.dim,
        parameters: graph.params().iter().map(|p| p.shape.iter().product::<i64>()).sum(),
        drops: graph.has_dropout(),
        functions: functions::needed(used),
        depth: owners.len(),
        places: shared.then_some(owners),
        kinds: list(&kinds),
        init: init(graph.params(), &names),
        mixed,
        reads_ids: top.lines.iter().any(|line| reads_ids(line)),
        head: body::head(&graph.top, &names, &uses),
        left_out: masters::left_out(graph, experiment),
        squares,
        kept_in_f32: kept_names(graph, &names),
        drops_at: drops_at(&classes, &kinds, &top),
        arguments: arguments.replace("self.drops[depth]", "drops"),
        tables,
        means,
        classes,
        top,
    })
}

/// The factors of nll² and lse², unless both are 0.
fn squares(experiment: &Experiment) -> Option<[f64; 2]> {
    let loss = experiment.loss;
    let squares = [loss.nll_square.to_f64(), loss.z_loss.to_f64()];
    (squares != [0.0; 2]).then_some(squares)
}

/// The names of parameters that keep f32: without the layer, unless another layer has one of that name that does not.
fn kept_names(graph: &Graph, names: &[String]) -> Vec<String> {
    let below = |name: &str| in_layer(name).map_or(name, |(_, rest)| rest).to_owned();
    let (kept, rounded): (Vec<_>, Vec<_>) =
        names.iter().zip(kept_in_f32(graph)).partition(|(_, kept)| *kept);
    let rounded: BTreeSet<String> = rounded.into_iter().map(|(name, _)| below(name)).collect();
    let kept = kept.into_iter().map(|(name, _)| match below(name) {
        below if rounded.contains(&below) => name.clone(),
        below => below,
    });
    kept.collect::<BTreeSet<String>>().into_iter().collect()
}

/// The paths of the calls that drop elements: of each layer, then of the model outside of them.
fn drops_at(classes: &[Class], kinds: &[String], top: &Class) -> Vec<Vec<String>> {
    let path = |layer: usize, at: &str| match at {
        "" => format!("layers.{layer}"),
        at => format!("layers.{layer}.{at}"),
    };
    let of_layer = |(layer, kind): (usize, &String)| {
        let class = classes.iter().find(|class| class.name == *kind);
        let drops = class.map(|class| class.drops.as_slice()).unwrap_or_default();
        drops.iter().map(|at| path(layer, at)).collect()
    };
    kinds.iter().enumerate().map(of_layer).chain([top.drops.clone()]).collect()
}

/// What every training layer gets besides its inputs, as Python.
fn arguments(graph: &Graph, means: &[&str]) -> String {
    let mut text = String::new();
    if graph.calls("rope") {
        text += ", tables";
    }
    if graph.has_dropout() {
        text += ", self.drops[depth], windows";
    }
    if !means.is_empty() {
        text += ", terms";
    }
    text
}

/// What all classes of a module are written with.
#[derive(Clone, Copy)]
struct Passed<'a> {
    form: Form,
    arguments: &'a str,
    terms: bool,
}

impl<'a> Passed<'a> {
    fn common(self, uses: &'a Uses, tables: &'a mut Vec<String>) -> Common<'a> {
        let Passed { form, arguments, terms } = self;
        Common { form, uses, arguments, terms, tables }
    }
}

/// Whether a line of the model's class reads token ids, but for the table's rows and the device.
fn reads_ids(line: &str) -> bool {
    let (statement, _) = line.split_once("  # ").unwrap_or((line, ""));
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    !statement.ends_with("if embeds is None else embeds")
        && statement.replace("like=tokens", "").split(word).any(|name| name == "tokens")
}

/// The attributes in which the model's own class finds each parameter: layers declare theirs.
fn top_attributes(graph: &Graph, names: &[String]) -> Vec<Attribute> {
    let attribute = |(param, name): (&Param, &String)| match in_layer(&param.path) {
        Some(_) => Attribute::OfLayer(name.clone()),
        None => Attribute::OfClass(name.clone()),
    };
    graph.params().iter().zip(names).map(attribute).collect()
}

struct Layers {
    classes: Vec<Class>,
    /// Each layer's class.
    kinds: Vec<String>,
    /// The layer that owns each layer's parameters.
    owners: Vec<u32>,
}

/// Whether a layer has the parameters of another one.
fn are_shared(owners: &[u32]) -> bool {
    owners.iter().enumerate().any(|(layer, owner)| layer as u32 != *owner)
}

/// One class for each distinct body.
fn layers(
    arch: &str,
    graph: &Graph,
    passed: Passed<'_>,
    tables: &mut Vec<String>,
) -> Result<Layers, Problem> {
    let mut bodies: Vec<&Rc<Body>> = Vec::new();
    let mut all: Vec<&Rc<Body>> = Vec::new();
    let mut layers = Layers { classes: Vec::new(), kinds: Vec::new(), owners: Vec::new() };
    for (index, body, params, _) in graph.layers() {
        all.push(body);
        layers.owners.push(owner(arch, graph, &all, index, params)?);
    }
    // Layers with the same parameters have the same modules.
    let shared = are_shared(&layers.owners);
    let mut common = Uses::new();
    for body in all.iter().filter(|_| shared) {
        for (group, kinds) in body::uses(body, &tensor_names(&body.params), passed.form) {
            common.entry(group).or_default().extend(kinds);
        }
    }
    for body in all {
        let class = match bodies.iter().position(|known| Rc::ptr_eq(known, body)) {
            Some(class) => class,
            None => {
                let name = format!("Layer{}", bodies.len());
                let names = tensor_names(&body.params);
                let uses_here = body::uses(body, &names, passed.form);
                let attributes: Vec<Attribute> =
                    names.into_iter().map(Attribute::OfClass).collect();
                let uses = if shared { &common } else { &uses_here };
                let mut common = passed.common(uses, tables);
                layers.classes.push(body::class(&name, body, &attributes, &mut common)?);
                bodies.push(body);
                bodies.len() - 1
            }
        };
        layers.kinds.push(format!("Layer{class}"));
    }
    Ok(layers)
}

/// The layer that owns a layer's parameters: itself, or the first of the shared ones, which must have all of them.
fn owner(
    arch: &str,
    graph: &Graph,
    bodies: &[&Rc<Body>],
    index: u32,
    params: &[ParamId],
) -> Result<u32, Problem> {
    let local = bodies.get(index as usize).map_or(&[][..], |body| body.params.as_slice());
    let mut common = None;
    for (id, local) in params.iter().zip(local) {
        let path = &graph.params()[id.0 as usize].path;
        let owner = in_layer(path).filter(|(layer, rest)| {
            let has = bodies
                .get(*layer as usize)
                .is_some_and(|body| body.params.iter().any(|param| param.path == local.path));
            has && *rest == local.path && common.is_none_or(|common| common == *layer)
        });
        let Some((owner, _)) = owner else {
            return Err(Problem::in_file(
                arch,
                format!("layer {index} reads `{path}`, which belongs to another part of the model"),
                "give the layer a weight of its own, or share whole layers with `share`",
            ));
        };
        common = Some(owner);
    }
    Ok(common.unwrap_or(index))
}

/// The layer of a path and the path in it.
fn in_layer(path: &str) -> Option<(u32, &str)> {
    let (layer, rest) = path.strip_prefix("layers.")?.split_once('.')?;
    Some((layer.parse().ok()?, rest))
}

/// A list in Python, with runs of equal items as products.
fn list(items: &[String]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut plain: Vec<&str> = Vec::new();
    let close = |plain: &mut Vec<&str>, parts: &mut Vec<String>| {
        if !plain.is_empty() {
            parts.push(format!("[{}]", plain.join(", ")));
            plain.clear();
        }
    };
    for run in items.chunk_by(|a, b| a == b) {
        match run {
            [item] => plain.push(item),
            [first, ..] => {
                close(&mut plain, &mut parts);
                parts.push(format!("[{first}] * {}", run.len()));
            }
            [] => {}
        }
    }
    close(&mut plain, &mut parts);
    if parts.is_empty() { "[]".to_owned() } else { parts.join(" + ") }
}

/// Initial distributions. Layers with one rule have one row, with `*` for their number.
fn init(params: &[Param], names: &[String]) -> Vec<Init> {
    let mut rows: Vec<Init> = Vec::new();
    for (param, name) in params.iter().zip(names) {
        let (rule, general) = (distribution(&param.init), starred(name));
        match rows.iter().find(|row| row.name == general) {
            Some(row) if row.rule == rule => {}
            Some(_) => rows.push(Init { name: name.clone(), rule }),
            None => rows.push(Init { name: general, rule }),
        }
    }
    rows
}

/// `layers.3.mixer.wq.weight` as `layers.*.mixer.wq.weight`.
fn starred(name: &str) -> String {
    in_layer(name).map_or(name.to_owned(), |(_, rest)| format!("layers.*.{rest}"))
}

/// The call of a function of the template's that draws a tensor's initial values.
fn distribution(rule: &InitRule) -> String {
    let number = |root: &Root| format!("{:?}", root.to_f64());
    match rule {
        InitRule::Ones => "constant(1.0)".to_owned(),
        InitRule::Zeros => "constant(0.0)".to_owned(),
        InitRule::Constant(value) => format!("constant({})", number(value)),
        InitRule::Normal { std } => format!("normal({})", number(std)),
        InitRule::TruncNormal { std, bound } => {
            format!("trunc_normal({}, {})", number(std), number(bound))
        }
        InitRule::Uniform { limit } => format!("uniform({})", number(limit)),
        InitRule::LogUniform { lo, hi } => format!("log_uniform({}, {})", number(lo), number(hi)),
        InitRule::TimeStep { lo, hi, floor } => {
            format!("time_step({}, {}, {})", number(lo), number(hi), number(floor))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_layers_are_short() {
        let items = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(list(&items("a a a")), "[a] * 3");
        assert_eq!(list(&items("a b a b b")), "[a, b, a] + [b] * 2");
        assert_eq!(list(&[]), "[]");
    }
}
