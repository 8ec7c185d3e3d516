//! One architecture's facts, collected once and written in two forms: for people and as JSON.

use std::collections::BTreeSet;

use compiler::analyse::Analysis;
use compiler::graph::Param;
use compiler::kinds::{LayerKind, layer_kinds, numbered};
use compiler::op::State;
use compiler::program::Compiled;
use serde::Serialize;

use crate::output::{grouped, rounded, table};

/// The facts of one architecture.
pub(super) struct Shown<'a> {
    compiled: &'a Compiled,
    analysis: Analysis,
    tables: Vec<Table>,
}

/// One kind of layer, or the parts outside the layers.
#[derive(Serialize)]
struct Table {
    layers: Option<Vec<u32>>,
    definition: Option<String>,
    /// Its mixer and MLP, if it has such fields.
    parts: Vec<String>,
    parameters: Vec<ParameterRow>,
    state: Vec<StateRow>,
    /// Layers with their own parameters; fewer than `layers` if some are shared.
    #[serde(skip)]
    owners: usize,
}

#[derive(Serialize)]
struct ParameterRow {
    path: String,
    shape: Vec<i64>,
    init: String,
    count: i64,
}

#[derive(Serialize)]
struct StateRow {
    path: String,
    kind: &'static str,
    /// `time` is the number of tokens so far.
    shape: Vec<String>,
    elements: i64,
    per_token: i64,
}

impl<'a> Shown<'a> {
    pub(super) fn from_compiled(compiled: &'a Compiled, analysis: Analysis) -> Shown<'a> {
        let graph = &compiled.graph;
        let outside = graph.params().iter().filter(|p| !p.path.starts_with("layers."));
        let states = graph.top.states.iter().filter(|(path, _)| !path.starts_with("layers."));
        let mut tables = vec![Table {
            layers: None,
            definition: None,
            parts: Vec::new(),
            parameters: outside.map(ParameterRow::from_param).collect(),
            state: states.map(|(p, s)| StateRow::from_state(p, s, analysis.seq_len)).collect(),
            owners: 1,
        }];
        for LayerKind { layers, body } in layer_kinds(graph) {
            let path = format!("layers.{}", layers.first().copied().unwrap_or(0));
            let field = |path: &str| {
                compiled.fields.iter().find(|f| f.path == path).map(|field| field.value.clone())
            };
            let parts = ["mixer", "mlp"].iter().filter_map(|part| field(&format!("{path}.{part}")));
            let owned: BTreeSet<_> = graph
                .layers()
                .filter(|(index, ..)| layers.contains(index))
                .map(|(.., params, _)| params)
                .collect();
            tables.push(Table {
                parts: parts.collect(),
                definition: field(&path),
                parameters: body.params.iter().map(ParameterRow::from_param).collect(),
                state: body
                    .states
                    .iter()
                    .map(|(path, state)| StateRow::from_state(path, state, analysis.seq_len))
                    .collect(),
                owners: if body.params.is_empty() { layers.len() } else { owned.len() },
                layers: Some(layers),
            });
        }
        Shown { compiled, analysis, tables }
    }

    /// The facts as text for people.
    pub(super) fn text(&self, file: &str) -> String {
        let Shown { compiled, analysis: a, tables } = self;
        let mut text = format!("{}   {file}\n", compiled.name);
        for line in &compiled.docs {
            text += &format!("  {line}\n");
        }
        text += &format!("\n  {}\n", self.fields());
        text += &format!("  graph    {}\n", compiled.identity.graph);
        text += &format!("  manifest {}\n", compiled.identity.manifest);
        let share = |n: i64| match n {
            0 => String::new(),
            n => format!("{:.2}%", n as f64 * 100.0 / a.parameters.max(1) as f64),
        };
        let active = match a.active == a.parameters {
            true => None,
            // Experts: what one token uses.
            false => Some(("  active", grouped(a.active), share(a.active))),
        };
        let rows = [
            ("parameters", grouped(a.parameters), rounded(a.parameters).trim_end().to_owned()),
            ("  non-embedding", grouped(a.non_embedding), share(a.non_embedding)),
            ("  Canon layers", grouped(a.canon), share(a.canon)),
            ("  short convolutions", grouped(a.short_conv), share(a.short_conv)),
        ];
        let (first, rest) = rows.split_at(1);
        let rows = first.iter().cloned().chain(active).chain(rest.iter().cloned());
        let rows: Vec<_> = rows.map(|(name, n, note)| vec![name.to_owned(), n, note]).collect();
        text += &format!("\n{}", table(&rows, &[false, true, true], 0));
        let tokens = i128::from(a.seq_len);
        let rows = [
            ("forward", format!("{}FLOPs", rounded(a.flops_per_token)), "per token"),
            ("training", format!("{}FLOPs", rounded(a.train_flops_per_token)), "per token"),
            (
                "  all experts",
                format!("{}FLOPs", rounded(a.dense_flops_per_token)),
                "per token, forward, if every expert were chosen",
            ),
            (
                "activations",
                format!("{}B", rounded(4 * tokens * a.saved_per_token)),
                "per sequence, f32, nothing recomputed",
            ),
            (
                "optimiser",
                format!("{}B", rounded(a.optimizer_bytes)),
                "parameters, gradients and AdamW's moments, f32",
            ),
            ("state", format!("{}B", rounded(4 * a.state)), "per sequence, f32"),
            ("  growing by", format!("{}B", rounded(4 * a.state_per_token)), "per token"),
        ];
        let is_shown =
            |name: &str| name != "  all experts" || a.dense_flops_per_token != a.flops_per_token;
        let rows = rows.into_iter().filter(|(name, ..)| is_shown(name));
        let rows: Vec<_> =
            rows.map(|(name, n, note)| vec![name.to_owned(), n, note.to_owned()]).collect();
        text += &format!("\nat {}\n", crate::output::counted(a.seq_len, "token"));
        text += &table(&rows, &[false, true, false], 2);
        for table in tables {
            text += &format!("\n{}", table.text(compiled.graph.dim));
        }
        text
    }

    fn fields(&self) -> String {
        let Shown { compiled, analysis: _, tables: _ } = self;
        let value = |path: &str| compiled.fields.iter().find(|f| f.path == path).map(|f| &f.value);
        let mut parts: Vec<String> = ["vocab", "dim", "norm_eps", "layers", "head"]
            .iter()
            .filter_map(|path| Some(format!("{path} {}", value(path)?)))
            .collect();
        if !compiled.tree.init_name.is_empty() {
            parts.push(format!("init {}", compiled.tree.init_name));
        }
        parts.join("   ")
    }
}

impl Table {
    fn text(&self, dim: i64) -> String {
        let Table { layers, definition, parts, parameters, state, owners } = self;
        let mut text = match layers {
            None => "outside the layers\n".to_owned(),
            Some(layers) => {
                let name = definition.as_deref().unwrap_or("layer");
                let shared = match *owners {
                    n if n >= layers.len() => String::new(),
                    1 => ", shared by all".to_owned(),
                    n => format!(", shared: {n} instances"),
                };
                let of = match parts.is_empty() {
                    true => String::new(),
                    false => format!(" of {}", parts.join(" and ")),
                };
                let own: i64 = parameters.iter().map(|row| row.count).sum();
                let (own, numbers) = (crate::output::counted(own, "parameter"), numbered(layers));
                format!("{numbers}: {} × {name}{of}, {own}{shared}\n", layers.len())
            }
        };
        let times = if *owners > 1 { format!("{owners} × ") } else { String::new() };
        let rows: Vec<Vec<String>> = parameters
            .iter()
            .map(|row| {
                let ParameterRow { path, shape, init, count } = row;
                vec![
                    path.clone(),
                    format!("{shape:?}"),
                    init.clone(),
                    format!("{times}{}", grouped(*count)),
                ]
            })
            .collect();
        text += &table(&rows, &[false, false, false, true], 2);
        if state.is_empty() {
            return text;
        }
        text += "  state per layer and sequence\n";
        let rows: Vec<Vec<String>> = state.iter().map(|row| row.cells(dim)).collect();
        text + &table(&rows, &[false, false, false, true, false], 4)
    }
}

impl ParameterRow {
    fn from_param(param: &Param) -> ParameterRow {
        ParameterRow {
            path: param.path.clone(),
            shape: param.shape.clone(),
            init: param.init.to_string(),
            count: param.shape.iter().product(),
        }
    }
}

impl StateRow {
    fn from_state(path: &str, state: &State, seq_len: i64) -> StateRow {
        let (kind, shape) = match state {
            State::Inputs { steps, channels } => {
                ("inputs", vec![steps.to_string(), channels.to_string()])
            }
            State::Tokens { count } => ("tokens", vec![count.to_string()]),
            State::KeyValue { kv_heads, key_dim, value_dim, window } => {
                let rows = window.map_or("time".to_owned(), |window| window.to_string());
                let width = format!("{key_dim}+{value_dim}");
                ("keys_values", vec![rows, kv_heads.to_string(), width])
            }
            State::Matrix { heads, rows, columns } => {
                ("matrix", vec![heads.to_string(), rows.to_string(), columns.to_string()])
            }
        };
        let elements = state.elements(seq_len);
        StateRow {
            path: path.to_owned(),
            kind,
            shape,
            elements,
            per_token: state.elements(seq_len.saturating_add(1)) - elements,
        }
    }

    fn cells(&self, dim: i64) -> Vec<String> {
        let StateRow { path, kind, shape, elements, per_token } = self;
        let mut notes = Vec::new();
        if *per_token > 0 {
            notes.push(format!("{} more with each token", grouped(*per_token)));
        }
        // The release gives every recurrent mixer the same state: 256 · dim per layer.
        if *kind == "matrix" && dim > 0 && elements % dim == 0 {
            notes.push(format!("{} · dim", elements / dim));
        }
        vec![
            if path.is_empty() { "mixer".to_owned() } else { path.clone() },
            (*kind).to_owned(),
            format!("[{}]", shape.join(", ")),
            grouped(*elements),
            notes.join(", "),
        ]
    }
}

// The schema of `--json`.

#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema: &'static str,
    seq_len: i64,
    archs: Vec<Arch<'a>>,
}

#[derive(Serialize)]
struct Arch<'a> {
    name: &'a str,
    docs: &'a [String],
    vocab: i64,
    dim: i64,
    layers: usize,
    graph: String,
    manifest: String,
    parameters: Parameters,
    flops_per_token: Flops,
    bytes_per_sequence: Bytes,
    optimizer_bytes: i128,
    state: StateTotals,
    tables: &'a [Table],
}

#[derive(Serialize)]
struct Parameters {
    total: i64,
    active: i64,
    non_embedding: i64,
    canon: i64,
    short_conv: i64,
}

#[derive(Serialize)]
struct Flops {
    forward: i128,
    dense: i128,
    training: i128,
}

#[derive(Serialize)]
struct Bytes {
    activations: i128,
}

#[derive(Serialize)]
struct StateTotals {
    per_sequence: i128,
    per_token: i128,
}

pub(super) fn json<'a>(seq_len: i64, archs: &'a [Shown<'a>]) -> Document<'a> {
    let archs = archs.iter().map(|shown| {
        let Shown { compiled, analysis: a, tables } = shown;
        Arch {
            name: &compiled.name,
            docs: &compiled.docs,
            vocab: compiled.graph.vocab,
            dim: compiled.graph.dim,
            layers: compiled.graph.layers().count(),
            graph: compiled.identity.graph.to_string(),
            manifest: compiled.identity.manifest.to_string(),
            parameters: Parameters {
                total: a.parameters,
                active: a.active,
                non_embedding: a.non_embedding,
                canon: a.canon,
                short_conv: a.short_conv,
            },
            flops_per_token: Flops {
                forward: a.flops_per_token,
                dense: a.dense_flops_per_token,
                training: a.train_flops_per_token,
            },
            bytes_per_sequence: Bytes {
                activations: 4 * i128::from(a.seq_len) * a.saved_per_token,
            },
            optimizer_bytes: a.optimizer_bytes,
            state: StateTotals { per_sequence: a.state, per_token: a.state_per_token },
            tables,
        }
    });
    Document { schema: "canonc.show.v1", seq_len, archs: archs.collect() }
}
