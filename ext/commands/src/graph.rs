//! `canonc graph`: the computation of an architecture, as the text that is hashed or as a picture.

mod artifacts;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use compiler::canonical::{Identity, identify};
use compiler::erase::erase;
use compiler::graph::{Body, Graph, NodeKind};
use compiler::plans;
use compiler::program::Compiled;
use draw::{Subject, TooLarge, dot, svg};

use cli::archs::{self, Archs, NamedArch, Trained};
use cli::fail::{Exit, Failure, Outcome};
use cli::options::within;
use cli::output;

/// Show an architecture's compute graph, as text or as a picture
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc graph arch/llamacanon_1B.canon                    the text that the structural hash covers
  canonc graph arch/llamacanon_1B.canon --format svg > llamacanon.svg
  canonc graph arch/hybrid_1B.canon --format dot | dot -Tpdf > hybrid.pdf
  canonc graph arch/llamacanon_1B.canon --erase B,D        with slots B and D empty
  canonc graph arch/llamacanon_1B.canon --layer 0          the body of one layer
  canonc graph lockfiles/demo.lock --arch llama_demo --plan  every operation of a training step
  canonc graph --artifacts                                 archs, recipes, locks and runs, with stale ones marked")]
pub struct GraphArgs {
    /// A .canon file, a lock, or a run's folder
    #[arg(value_name = "FILE", required_unless_present = "artifacts")]
    pub file: Option<PathBuf>,
    /// The architecture to show, if the file defines several
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// The output format: the canonical text that is hashed, Graphviz, or a picture
    #[arg(long, value_enum, default_value_t)]
    pub format: GraphFormat,
    /// Show only the body of this layer
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<u32>(0, u32::MAX))]
    pub layer: Option<u32>,
    /// Empty these slots first: names separated by commas, or `all`
    #[arg(long, value_name = "SLOTS", value_delimiter = ',')]
    pub erase: Vec<String>,
    /// Show the operations of a training step: forward, backward, sum, update. Settings come from the lock;
    /// a .canon file uses AdamW and cross-entropy in f32
    #[arg(long, conflicts_with_all = ["format", "layer"])]
    pub plan: bool,
    /// Show which file is made from which in this folder instead, and which are stale or missing (text or dot)
    #[arg(long, conflicts_with_all = ["file", "arch", "layer", "erase", "plan"])]
    pub artifacts: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    #[default]
    Text,
    Dot,
    Svg,
}

pub fn graph(args: &GraphArgs) -> Outcome {
    let Some(file) = &args.file else { return artifact_graph(args.format) };
    let Archs { name, archs } = archs::all(file, args.arch.as_deref())?;
    let [NamedArch { compiled, train, .. }] = archs.as_slice() else {
        let names: Vec<&str> = archs.iter().map(|arch| arch.compiled.name.as_str()).collect();
        return Err(Failure::bad_input(format!(
            "`{name}` has {} archs: {}",
            names.len(),
            names.join(", ")
        ))
        .help(format!("name one: `--arch {}`", names.first().unwrap_or(&""))));
    };
    let layers = compiled.graph.layers().count();
    if let Some(layer) = args.layer
        && layer as usize >= layers
    {
        return Err(Failure::bad_input(format!(
            "`{}` has {}; layer {layer} does not exist",
            compiled.name,
            output::counted(layers, "layer")
        ))
        .help(format!("layers are numbered from 0 to {}", layers.saturating_sub(1))));
    }
    let graph = erased(compiled, &args.erase)?;
    let subject = Subject { name: &compiled.name, graph: &graph, fields: &compiled.fields };
    let text = match args.format {
        GraphFormat::Text if args.plan => train_plan(&graph, train.as_ref())?,
        GraphFormat::Text => text(&identify(&graph), args.layer),
        GraphFormat::Dot => dot(&subject, args.layer),
        GraphFormat::Svg => svg(&subject, args.layer).map_err(|error| too_large(error, args))?,
    };
    output::data(&text)?;
    Ok(Exit::Fine)
}

fn artifact_graph(format: GraphFormat) -> Outcome {
    if format == GraphFormat::Svg {
        return Err(Failure::bad_input("the artefact graph has no SVG form")
            .help("`canonc graph --artifacts --format dot | dot -Tsvg` draws it"));
    }
    let all = artifacts::artifacts()?;
    let text = if format == GraphFormat::Dot { all.dot() } else { all.text() };
    let text = text.map_err(|circle| {
        Failure::bad_input(format!(
            "these files import each other in a cycle: {}",
            circle.join(", ")
        ))
        .help("`canonc check` says where")
    })?;
    output::data(&text)?;
    Ok(if all.broken() { Exit::Finding } else { Exit::Fine })
}

fn train_plan(graph: &Graph, trained: Option<&Trained>) -> Result<String, Failure> {
    let options = match trained {
        Some(Trained { options, loss: _, seq_len: _ }) => options.clone(),
        None => archs::usual_training().map_err(|error| Failure::machine(format!("{error:?}")))?,
    };
    Ok(plans::train(graph, &options).text())
}

fn erased(compiled: &Compiled, slots: &[String]) -> Result<Graph, Failure> {
    let filled = filled(&compiled.graph);
    let all = slots.iter().any(|slot| slot == "all");
    let unknown = slots.iter().find(|slot| *slot != "all" && !filled.contains(slot));
    if let Some(unknown) = unknown {
        let failure =
            Failure::bad_input(format!("`{}` has no filled slot `{unknown}`", compiled.name));
        return Err(if filled.is_empty() {
            failure.help("none of its slots is filled; remove `--erase`")
        } else {
            failure.help(format!(
                "its filled slots are {}; `--erase all` empties all of them",
                filled.join(", ")
            ))
        });
    }
    if slots.is_empty() {
        return Ok(compiled.graph.clone());
    }
    Ok(erase(&compiled.graph, &|_, name| all || slots.iter().any(|slot| slot == name)))
}

/// Names of the slots that any layer fills.
fn filled(graph: &Graph) -> Vec<String> {
    fn collect(body: &Body, names: &mut Vec<String>) {
        for node in &body.nodes {
            match &node.kind {
                NodeKind::Slot { name, .. } => names.push(name.clone()),
                NodeKind::Layer { body, .. } => collect(body, names),
                NodeKind::Input(_) | NodeKind::Param(_) | NodeKind::Op { .. } => {}
            }
        }
    }
    let mut names = Vec::new();
    collect(&graph.top, &mut names);
    names.sort();
    names.dedup();
    names
}

/// The whole canonical text, or the body of one layer with the bodies it uses.
fn text(identity: &Identity, layer: Option<u32>) -> String {
    let all = &identity.graph_text;
    let Some(layer) = layer else { return all.clone() };
    let bodies: Vec<&str> = all.split_inclusive("end\n").collect();
    let top = bodies.last().copied().unwrap_or("");
    let mut of_layers = top.lines().filter_map(|line| {
        let (_, rest) = line.split_once("= layer {body ")?;
        rest.split('}').next()
    });
    let Some(digest) = of_layers.nth(layer as usize) else { return String::new() };
    let find = |digest: &str| {
        bodies
            .iter()
            .copied()
            .find(|body| body.strip_prefix("body ").is_some_and(|rest| rest.starts_with(digest)))
    };
    let Some(body) = find(digest) else { return String::new() };
    let mut fills: Vec<&str> =
        body.split("fill ").skip(1).filter_map(|rest| find(rest.split('}').next()?)).collect();
    fills.sort_unstable();
    fills.dedup();
    fills.push(body);
    fills.concat()
}

fn too_large(error: TooLarge, args: &GraphArgs) -> Failure {
    let TooLarge { boxes } = error;
    let failure = Failure::bad_input(format!("a picture with {boxes} boxes would be unreadable"));
    match args.layer {
        None => failure.help("draw one layer: `--layer 0`").help("or use Graphviz: `--format dot`"),
        Some(_) => failure.help("use Graphviz: `--format dot`"),
    }
}
