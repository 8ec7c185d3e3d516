//! The golden cases of mixers and blocks (`tests/mixers`): each is a `.canon` text, and the runtime must give all of its
//! numbers.
//!
//! A case's inputs become one sequence of vectors: the token table of an arch with one layer, which cuts them up, calls
//! the text, and returns its results side by side as logits. So training and decoding plans run as they do for any
//! arch; only the gradient of the loss is replaced by the case's cotangents.

use std::collections::BTreeMap;
use std::path::PathBuf;

use compiler::graph::Graph;
use compiler::kernel::{Kernel, TopK};
use compiler::number::{Ratio, Root};
use compiler::plan::{Input, Loss, Output, Plan, Sizes, Value as Planned};
use compiler::plans;
use compiler::program::{Program, Std};
use runtime::execute::{Carried, Machine, Streamer, compute};
use runtime::weights::{Weights, file};
use serde_json::Value;
use tch::{Kind, Tensor};

use super::support::{
    DOUBLE, FAST, PLAIN, decimal, furthest, quiet, relative, streamer, train_options,
};
use ::support::programs::TEXT;

/// The auxiliary losses of a plan, by their numbers there, and the cases' names for them.
const TERMS: [(usize, &str); 2] = [(0, "balance"), (1, "z_loss")];

/// A name, and a tensor or its size.
type Named<T> = (String, T);

struct MixerCase {
    about: Value,
    tensors: BTreeMap<String, Tensor>,
    text: String,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/mixers")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The cases with a text; the others are those of `missing.txt`.
fn cases() -> Vec<MixerCase> {
    let all: Value = serde_json::from_str(&read("cases.json")).unwrap();
    let (mut cases, mut missing) = (Vec::new(), Vec::new());
    for about in all.as_array().unwrap() {
        let name = about["name"].as_str().unwrap();
        let Ok(text) = std::fs::read_to_string(folder().join(format!("{name}.canon"))) else {
            missing.push(name.to_owned());
            continue;
        };
        let tensors = file::read(&folder().join(about["file"].as_str().unwrap())).unwrap();
        cases.push(MixerCase { about: about.clone(), tensors, text });
    }
    missing.sort();
    let listed = read("missing.txt");
    assert_eq!(listed.lines().collect::<Vec<_>>(), missing, "`missing.txt` is not exact");
    cases
}

impl MixerCase {
    fn name(&self) -> &str {
        self.about["name"].as_str().unwrap()
    }

    fn number(&self, key: &str) -> i64 {
        self.about["params"][key].as_i64().unwrap_or_else(|| panic!("{}: {key}", self.name()))
    }

    fn tensor(&self, name: &str) -> &Tensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("{} has no {name}", self.name()))
    }

    /// The position of the first token.
    fn start(&self) -> i64 {
        self.about["params"]["start"].as_i64().unwrap_or(0)
    }

    /// The names under a key of the description: `inputs`, `outputs`, `state`.
    fn names(&self, key: &str) -> Vec<String> {
        let names = self.about[key].as_object();
        let mut names: Vec<String> =
            names.into_iter().flat_map(|map| map.keys().cloned()).collect();
        names.sort();
        names
    }

    /// The tensor as [batch, time, …], if it runs over time; axes of layers go behind.
    fn over_time(&self, tensor: &Tensor) -> Option<Tensor> {
        let start = [self.number("B"), self.number("T")];
        let size = tensor.size();
        if size.starts_with(&start) {
            return Some(tensor.shallow_clone());
        }
        let layers = self.about["params"]["layers"].as_i64();
        (layers.is_some() && size.first() == layers.as_ref() && size[1..].starts_with(&start)).then(
            || {
                let rest = 3..size.len() as i64;
                tensor.permute([1, 2, 0].into_iter().chain(rest).collect::<Vec<_>>())
            },
        )
    }

    /// The inputs that run over time, as [batch, time, …], without token ids.
    fn sequences(&self) -> Vec<Named<Tensor>> {
        let inputs = self.names("inputs").into_iter().filter(|name| name != "tokens");
        inputs
            .filter_map(|name| {
                let tensor = self.over_time(self.tensor(&format!("in/{name}")))?;
                Some((name, tensor))
            })
            .collect()
    }

    /// The results with a cotangent, as [batch, time, …].
    fn results(&self) -> Vec<Named<Tensor>> {
        let outputs = self.names("outputs").into_iter();
        outputs
            .filter(|name| self.tensors.contains_key(&format!("cot/{name}")))
            .filter(|name| !TERMS.iter().any(|(_, known)| known == name))
            .map(|name| {
                let gold = self.over_time(self.tensor(&format!("out/{name}")));
                (name, gold.expect("a result over time"))
            })
            .collect()
    }

    /// The auxiliary losses with a cotangent: the plan's number of each, and the case's name.
    fn terms(&self) -> impl Iterator<Item = (usize, &'static str)> {
        let has = |name: &str| self.tensors.contains_key(&format!("cot/{name}"));
        TERMS.into_iter().filter(move |(_, name)| has(name))
    }

    /// The loss of a training plan, in which only the auxiliary losses count: their weights are the case's cotangents.
    fn loss(&self) -> Loss {
        let mut weights = [None, None];
        for (term, name) in self.terms() {
            let weight = self.tensor(&format!("cot/{name}")).double_value(&[]);
            let weight = decimal(&weight.to_string());
            weights[term] = Ratio::from_decimal(weight).map(Root::rational);
        }
        let [balance, router_z] = weights;
        Loss { balance, router_z, ..Loss::CROSS_ENTROPY }
    }

    /// Positions, and the width of the stream: there is a token for each position.
    fn width(&self) -> i64 {
        let widest = width(&self.sequences()).max(width(&self.results()));
        (widest + 1).max(self.number("B") * self.number("T"))
    }

    /// The text with an arch around it.
    fn arch(&self) -> String {
        let (inputs, results) = (self.sequences(), self.results());
        let (wide, given, made) = (self.width(), width(&inputs), width(&results));
        let names: Vec<String> = inputs.iter().map(|(name, _)| format!("given_{name}")).collect();
        let widths: Vec<String> = inputs.iter().map(|(_, x)| channels(x).to_string()).collect();
        let arguments = inputs.iter().map(|(name, x)| match heads(x) {
            Some(heads) => format!("heads(given_{name}, {heads})"),
            None => format!("given_{name}"),
        });
        let out: Vec<String> = results.iter().map(|(name, _)| format!("made_{name}")).collect();
        let merged = results.iter().map(|(name, y)| match heads(y) {
            Some(_) => format!("merge(made_{name})"),
            None => format!("made_{name}"),
        });
        let cut = format!(
            "{}, unused = split(x, {}, {})",
            names.join(", "),
            widths.join(", "),
            wide - given
        );
        format!(
            "{}
             block probe(x) {{
               {}
               {} = case({})
               before, rest = split(x, {made}, {})
               concat({}, rest)
             }}
             head as_it_is(x) {{ x }}
             init all {{ embed ones  linear ones  bias ones  norm ones  canon ones  short_conv ones  short_conv_bias ones }}
             arch golden {{ vocab {wide}  dim {wide}  norm_eps 1e-5  init all  layers 1 of probe  head as_it_is }}",
            self.text,
            if names.is_empty() { "" } else { &cut },
            out.join(", "),
            arguments.collect::<Vec<_>>().join(", "),
            wide - made,
            merged.collect::<Vec<_>>().join(", "),
        )
    }

    /// The graph, or what is wrong with the text.
    fn graph(&self) -> Result<Graph, String> {
        let program = Program::new([(TEXT.to_owned(), self.arch())], Std::Embedded);
        let (compiled, diagnostics) = program.compile(TEXT, "golden");
        let all = [program.diagnostics.as_slice(), &diagnostics].concat();
        compiled.map(|compiled| compiled.graph).ok_or_else(|| program.render(&all))
    }

    /// The inputs as the arch's parameters.
    fn weights(&self, graph: &Graph, machine: Machine) -> Weights {
        let rows = self.number("B") * self.number("T");
        let tensors = graph.params().iter().map(|param| {
            let tensor = match self.parameter(&param.path) {
                Some(tensor) => tensor,
                None => {
                    assert_eq!(param.path, "embed", "{}", self.name());
                    let wide = self.width();
                    let table = Tensor::zeros([wide, wide], (Kind::Double, machine.device));
                    let parts: Vec<Tensor> =
                        self.sequences().iter().map(|(_, x)| flat(x)).collect();
                    if !parts.is_empty() {
                        let all = Tensor::cat(&parts, -1).reshape([rows, -1]);
                        table.narrow(0, 0, rows).narrow(1, 0, all.size()[1]).copy_(&all);
                    }
                    table
                }
            };
            assert_eq!(tensor.size(), param.shape, "{}: {}", self.name(), param.path);
            tensor.to_kind(machine.kind)
        });
        let paths = graph.params().iter().map(|param| param.path.clone()).collect();
        Weights::new(paths, tensors.collect())
    }

    /// The input with the name of a parameter. The taps of a long convolution run from the present into the past.
    fn parameter(&self, path: &str) -> Option<Tensor> {
        let name = named(path)?;
        let given = of_layer(self.tensor(&format!("in/{name}")), path);
        Some(if self.is_turned(name) { given.flip([-1]) } else { given })
    }

    fn is_turned(&self, name: &str) -> bool {
        self.about["kind"] == "long_conv" && name == "h"
    }

    fn tokens(&self) -> Tensor {
        if let Some(tokens) = self.tensors.get("in/tokens") {
            return tokens.to_kind(Kind::Int64);
        }
        let (batch, time) = (self.number("B"), self.number("T"));
        Tensor::arange(batch * time, (Kind::Int64, tch::Device::Cpu)).reshape([batch, time])
    }
}

/// The input that a parameter of the block, or of a block that it calls, is.
fn named(path: &str) -> Option<&str> {
    path.strip_prefix("layers.0.case.")?.rsplit('.').next()
}

/// The row of a tensor for the call `layer_n`; all of it for other calls.
fn of_layer(tensor: &Tensor, path: &str) -> Tensor {
    let layer = path.split('.').find_map(|part| part.strip_prefix("layer_")?.parse::<i64>().ok());
    layer.map_or_else(|| tensor.shallow_clone(), |layer| tensor.select(0, layer))
}

/// Channels of [batch, time, …].
fn channels(x: &Tensor) -> i64 {
    x.size()[2..].iter().product()
}

/// Heads of [batch, time, …, heads, channels], with all axes before the last folded.
fn heads(x: &Tensor) -> Option<i64> {
    let size = x.size();
    (size.len() > 3).then(|| size[2..size.len() - 1].iter().product())
}

fn flat(x: &Tensor) -> Tensor {
    let size = x.size();
    x.reshape([size[0], size[1], -1])
}

fn width(all: &[Named<Tensor>]) -> i64 {
    all.iter().map(|(_, x)| channels(x)).sum()
}

/// What differs from the case's numbers.
struct Check<'a> {
    case: &'a MixerCase,
    machine: Machine,
    wrong: Vec<String>,
}

impl Check<'_> {
    fn close(&mut self, what: &str, got: &Tensor, gold: &Tensor) {
        if got.size() != gold.size() {
            let sizes = format!("{what}: {:?}, not {:?}", got.size(), gold.size());
            self.wrong.push(sizes);
            return;
        }
        // In f64 only the rounding of the file is left.
        let tolerance = self.case.about["tolerance"].as_f64().unwrap();
        let within = if self.machine.kind == Kind::Double { 1e-7 } else { tolerance };
        let error = relative(got, gold);
        if error.is_nan() || error > within {
            self.wrong.push(format!("{what}: {error:e}, not within {within:e}"));
        }
    }

    /// Results in the channels of the logits.
    fn results(&mut self, logits: &Tensor, what: &str) {
        let mut first = 0;
        for (name, gold) in self.case.results() {
            let count = channels(&gold);
            self.close(&format!("{name} {what}"), &logits.narrow(-1, first, count), &flat(&gold));
            first += count;
        }
    }

    fn states(&mut self, carried: &Carried, prefix: &str) {
        let names = self.case.names("state");
        let mut held: Vec<Tensor> = carried.states().map(Tensor::shallow_clone).collect();
        if self.case.about["kind"] == "ngram" {
            // Ids plus 1; the tokens of the longest n-gram are all that the case keeps.
            held =
                held.into_iter().max_by_key(Tensor::numel).map(|ids| ids - 1).into_iter().collect();
        }
        // Without golden states, the past keys and values are the inputs.
        if names.is_empty() {
            return;
        }
        if held.len() != names.len() {
            self.wrong.push(format!("{} states for {names:?}", held.len()));
            return;
        }
        // Several states of a case differ in size.
        let mut left = held;
        for name in &names {
            let gold = self.case.tensor(&format!("{prefix}/{name}"));
            let Some(at) = left.iter().position(|held| held.numel() == gold.numel()) else {
                self.wrong.push(format!("no state of the size of {prefix} {name}"));
                continue;
            };
            let held = left.remove(at);
            let held = match (self.case.about["kind"].as_str(), name.as_str(), &gold.size()[..]) {
                // The text has a head for each slot.
                (Some("gsa"), "K", [b, h, k, slots]) => {
                    held.reshape([*b, *h, *slots, *k]).transpose(-1, -2)
                }
                (_, _, size) => held.reshape(size),
            };
            self.close(&format!("{prefix} {name}"), &held, gold);
        }
    }

    /// Results and gradients of a training plan, with the case's cotangents.
    fn training(&mut self, graph: &Graph) {
        let case = self.case;
        let plan = plans::train(graph, &train_options(case.loss())).micro;
        let (machine, weights) = (self.machine, case.weights(graph, self.machine));
        let (batch, time) = (case.number("B"), case.number("T"));
        let seed = self.cotangents(batch, time);
        let mut values = self.inputs(&plan, &weights);
        let sizes = Sizes { batch, time, past: 0 };
        for step in &plan.steps {
            let results = if matches!(step.kernel, Kernel::CrossEntropyGrad(_)) {
                vec![seed.shallow_clone()]
            } else {
                let operands: Vec<&Tensor> = step.inputs.iter().map(|id| &values[&id.0]).collect();
                let types: Vec<&Planned> =
                    step.inputs.iter().map(|id| plan.value(*id).unwrap()).collect();
                compute(&step.kernel, &types, &operands, machine, sizes)
                    .unwrap_or_else(|error| panic!("{}: {error}", case.name()))
            };
            if let Kernel::CrossEntropy(_) = step.kernel {
                self.results(&values[&step.inputs[0].0], "in training");
            }
            if let Kernel::TopK(TopK { count, .. }) = step.kernel
                && case.about["params"]["top_k"].as_i64() == Some(count)
            {
                let gold = case.tensor("out/experts");
                if results[1].reshape([-1, count]) != *gold {
                    self.wrong.push("other experts are chosen".to_owned());
                }
                let experts = case.number("experts");
                let counts = results[1].flatten(0, -1).bincount(None::<&Tensor>, experts);
                assert!(counts == *case.tensor("out/counts"), "{}", case.name());
            }
            for (id, result) in step.outputs.iter().zip(results) {
                values.insert(id.0, result);
            }
        }
        for (term, name) in case.terms() {
            let value = &values[&plan.output(Output::Term(term as u32)).unwrap().0];
            self.close(name, value, case.tensor(&format!("out/{name}")));
        }
        self.gradients(graph, &plan, &values);
    }

    /// The gradients of the case's results, with zeros for the channels that it does not have.
    fn cotangents(&self, batch: i64, time: i64) -> Tensor {
        let (case, machine) = (self.case, self.machine);
        let mut cotangents: Vec<Tensor> = case
            .results()
            .iter()
            .map(|(name, _)| flat(&case.over_time(case.tensor(&format!("cot/{name}"))).unwrap()))
            .collect();
        let rest = case.width() - cotangents.iter().map(channels).sum::<i64>();
        cotangents.push(Tensor::zeros([batch, time, rest], (Kind::Float, machine.device)));
        Tensor::cat(&cotangents, -1).to_kind(machine.kind)
    }

    fn inputs(&self, plan: &Plan, weights: &Weights) -> BTreeMap<u32, Tensor> {
        let (case, tokens) = (self.case, self.case.tokens());
        let mut values: BTreeMap<u32, Tensor> = BTreeMap::new();
        for (input, id) in &plan.inputs {
            #[expect(
                clippy::wildcard_enum_match_arm,
                reason = "a test fails on whatever else it meets"
            )]
            let value = match input {
                Input::Tokens | Input::Targets => tokens.shallow_clone(),
                Input::Position => Tensor::from(case.start()),
                Input::GradScale => Tensor::from(1.0),
                Input::Param(param) => weights.tensors[param.0 as usize].shallow_clone(),
                other => panic!("a training plan asks for {other}"),
            };
            values.insert(id.0, value);
        }
        values
    }

    fn gradients(&mut self, graph: &Graph, plan: &Plan, values: &BTreeMap<u32, Tensor>) {
        let case = self.case;
        let (batch, time) = (case.number("B"), case.number("T"));
        for (n, param) in graph.params().iter().enumerate() {
            let id = compiler::graph::ParamId(n as u32);
            let gradient = &values[&plan.output(Output::Gradient(id)).unwrap().0];
            match named(&param.path) {
                Some(name) if case.is_turned(name) => {
                    self.gradient(name, "", &gradient.flip([-1]));
                }
                Some(name) => self.gradient(name, &param.path, gradient),
                None => {
                    let rows = gradient.narrow(0, 0, batch * time).reshape([batch, time, -1]);
                    let mut first = 0;
                    for (name, x) in case.sequences() {
                        let count = channels(&x);
                        self.gradient(&name, "", &rows.narrow(-1, first, count));
                        first += count;
                    }
                }
            }
        }
    }

    fn gradient(&mut self, name: &str, path: &str, got: &Tensor) {
        let zero = self.case.about["zero_gradients"].as_array().unwrap();
        if zero.iter().any(|known| known == name) {
            let most = got.abs().max().double_value(&[]);
            if most.is_nan() || most > 1e-7 {
                self.wrong.push(format!("gradient of {name} is not 0"));
            }
            return;
        }
        let gold = self.case.tensor(&format!("grad/{name}"));
        let gold =
            self.case.over_time(gold).map_or_else(|| of_layer(gold, path), |gold| flat(&gold));
        self.close(&format!("gradient of {name}"), got, &gold);
    }

    /// Decoding: the whole sequence, its parts before and after the split, and single tokens.
    fn decoding(&mut self, graph: &Graph) {
        let case = self.case;
        let (batch, time) = (case.number("B"), case.number("T"));
        let weights = case.weights(graph, self.machine);
        let streamer = streamer(graph, self.machine);
        let split = case.about["split"].as_i64();
        let at = split.unwrap_or(time / 3);
        for pieces in [vec![time], vec![at, time - at], vec![1; time as usize]] {
            let mut carried = streamer.start(batch).unwrap();
            carried.position = case.start();
            let mut logits = Vec::new();
            for piece in &pieces {
                let tokens = case.tokens().narrow(1, carried.position - case.start(), *piece);
                let (more, after) = forward(&streamer, &weights, &tokens, &carried);
                logits.push(more);
                carried = after;
                if split == Some(carried.position) {
                    self.states(&carried, "split");
                }
            }
            let what = format!("in {} pieces", pieces.len());
            self.results(&Tensor::cat(&logits, 1), &what);
            self.states(&carried, "state");
        }
    }
}

fn forward(
    streamer: &Streamer,
    weights: &Weights,
    tokens: &Tensor,
    carried: &Carried,
) -> (Tensor, Carried) {
    streamer.forward(weights, tokens, carried).unwrap()
}

#[test]
fn every_case_gives_its_numbers() {
    quiet();
    let mut wrong = Vec::new();
    for case in cases() {
        let graph = match case.graph() {
            Ok(graph) => graph,
            Err(why) => {
                wrong.push(format!("{}: {why}", case.name()));
                continue;
            }
        };
        for machine in [FAST, PLAIN, DOUBLE] {
            let mut check = Check { case: &case, machine, wrong: Vec::new() };
            check.training(&graph);
            check.decoding(&graph);
            let label = format!("{} in {:?}", case.name(), machine.kind);
            wrong.extend(check.wrong.into_iter().map(|why| format!("{label}: {why}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The loss that each file states is the sum of its results times its cotangents: the file is read as it was written.
#[test]
fn every_loss_is_that_of_the_results() {
    quiet();
    for case in cases() {
        let double = |name: &str| case.tensor(name).to_kind(Kind::Double);
        let mut sum = Tensor::from(0.0);
        let terms = case.terms().map(|(_, name)| name.to_owned());
        for name in case.results().into_iter().map(|(name, _)| name).chain(terms) {
            let product = double(&format!("out/{name}")) * double(&format!("cot/{name}"));
            sum += product.sum(Kind::Double);
        }
        let stated = Tensor::from(case.about["loss"].as_f64().unwrap());
        assert!(furthest(&sum, &stated) < 1e-4, "{}", case.name());
    }
}
