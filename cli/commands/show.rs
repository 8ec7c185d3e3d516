//! `canonc show`: the parts and costs of an architecture; or a standard definition.

mod arch;
mod definition;
mod fields;
mod recipe;
mod scale;

use std::path::{Path, PathBuf};

use clap::Args;
use compiler::analyse::analyse;

use crate::archs::{self, Archs};
use crate::fail::{self, Exit, Failure, Outcome};
use crate::options::within;
use crate::output;
use crate::workspace::{self, Target};

/// Show an architecture's parameters, FLOPs, memory and state, or a standard definition
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc show arch/llamacanon_1B.canon
  canonc show arch/llama_1B.canon --seq-len 8192
  canonc show arch/llama_1B.canon --json | jq '.archs[0].parameters.total'
  canonc show --fields arch/llama_1B.canon   every field, written or default
  canonc show std                  what the standard library defines
  canonc show attention            one definition, with its source
  canonc show std/init.canon       one whole file of the standard library
  canonc show --recipe-fields      every field of recipes, as in recipes/README.md
  canonc show lockfiles/demo_llama.lock --ranks 1 --device cpu          what a training step costs
  canonc show lockfiles --ranks locked --shard full --recompute selective   a table of all locks with devices

Schema of --json, one object on standard output (archs only):
  schema   \"canonc.show.v1\"
  seq_len  tokens of one sequence, for which costs are computed
  archs    each:
    name, docs, vocab, dim, layers, graph, manifest   the last two are digests
    parameters   {total, active, non_embedding, canon, short_conv}
    flops_per_token      {forward, dense, training}; a multiply-add is two FLOPs; dense if every expert were chosen
    bytes_per_sequence   {activations}; f32, without recomputation
    optimizer_bytes      parameters, gradients and both AdamW moments, f32
    state                {per_sequence, per_token}; elements after seq_len tokens, and added by each token
    tables               one for each kind of layer, and one for the rest of the model:
      layers       layer numbers; null outside the layers
      definition   the layer's definition; null outside the layers
      parts        its mixer and its MLP
      parameters   each {path, shape, init, count}; paths below `layers.N.`, counts of one layer
      state        each {path, kind, shape, elements, per_token}; of one layer and sequence

Schema of --fields --json: {schema: \"canonc.show.fields.v1\", archs: [{name, fields: [{path, value,
written}]}]}, with every layer's own fields; written is false for a default. As text, equal layers
share a line: layers.0..24 are 0 to 23, layers.3..24/4 every fourth from 3.

Schema of --recipe-fields --json: {schema: \"canonc.show.recipe_fields.v1\", fields: [{path, class,
origin, accepts, default, unit, only, doc}]}; default is null if the field is required, only
is null if every recipe has the field, else {path, values}.")]
pub struct ShowArgs {
    /// A .canon file, a lock, a run's folder, `std`, or the name of a standard definition, file or primitive
    #[arg(value_name = "FILE|NAME", required_unless_present = "recipe_fields")]
    pub what: Option<PathBuf>,
    /// After `std`: the name of a definition, file or primitive, which can also be given alone
    #[arg(value_name = "NAME", hide = true)]
    pub name: Option<PathBuf>,
    /// Show the path and value of every field instead, and whether it is a default
    #[arg(long)]
    pub fields: bool,
    /// Predict memory, bytes and time of a training step on this many devices, or `locked`: as many as the lock says. Needs
    /// the lock of an experiment, or a folder of locks for a table
    #[arg(long, value_name = "N", conflicts_with_all = ["fields", "recipe_fields", "arch", "seq_len"], value_parser = ranks)]
    pub ranks: Option<Ranks>,
    /// The devices of the prediction: h100, h200, a100 or cpu
    #[arg(long, value_name = "NAME", requires = "ranks", default_value = "h100")]
    pub device: String,
    /// What the ranks divide: none, optimizer or full [default: the lock's platform.shard]
    #[arg(long, value_name = "WHAT", requires = "ranks")]
    pub shard: Option<String>,
    /// What the backward pass recomputes: nothing, layers or selective [default: the lock's platform.recompute]
    #[arg(long, value_name = "WHAT", requires = "ranks")]
    pub recompute: Option<String>,
    /// Devices of a machine [default: the device's usual number]
    #[arg(long, value_name = "N", requires = "ranks", allow_negative_numbers = true, value_parser = within::<u64>(1, 1024))]
    pub gpus_per_node: Option<u64>,
    /// Add gradients on each machine before they leave it
    #[arg(long, requires = "ranks")]
    pub by_node: bool,
    /// Show every recipe field instead, with its class, default and unit, as Markdown
    #[arg(long, conflicts_with_all = ["what", "fields", "arch"])]
    pub recipe_fields: bool,
    /// The architecture to show, if the file defines several [default: all]
    #[arg(long, value_name = "NAME")]
    pub arch: Option<String>,
    /// Tokens per sequence
    #[arg(long, value_name = "N", default_value_t = 4096, allow_negative_numbers = true, value_parser = within::<i64>(1, 1 << 32))]
    pub seq_len: i64,
    /// Print JSON (`--help` shows the schema)
    #[arg(long)]
    pub json: bool,
}

/// How many ranks a prediction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// The lock's `platform.devices`.
    Locked,
    /// This many.
    Count(u64),
}

fn ranks(text: &str) -> Result<Ranks, String> {
    match text.parse() {
        Ok(count @ 1..=0x10_0000) => Ok(Ranks::Count(count)),
        Err(_) if text == "locked" => Ok(Ranks::Locked),
        Ok(_) | Err(_) => Err("give a whole number from 1 to 1048576, or `locked`".to_owned()),
    }
}

pub fn show(args: &ShowArgs) -> Outcome {
    let Some(what) = &args.what else { return recipe::show(args.json) };
    let what = match &args.name {
        None => what,
        // `canonc show std attention` is `canonc show attention`.
        Some(name) if what.as_os_str() == "std" => name,
        Some(name) => {
            let (what, name) = (fail::shown(what), fail::shown(name));
            let message = format!("one file or name is shown at a time, not `{what}` and `{name}`");
            return Err(Failure::bad_input(message).help(format!("`canonc show {what}`")));
        }
    };
    if let Some(ranks) = args.ranks {
        return scale::show(what, ranks, args);
    }
    if let Some(name) = word(what) {
        match definition::text(name) {
            Some(_) if args.fields => {
                return Err(Failure::bad_input(format!(
                    "`--fields` is for archs, but `{name}` is a name"
                ))
                .help("name a file: `canonc show --fields arch/NAME.canon`"));
            }
            Some(_) if args.json => {
                return Err(Failure::bad_input(format!(
                    "`--json` is for archs, but `{name}` is a name"
                ))
                .help(format!("`canonc show {name}` prints its text")));
            }
            Some(text) => {
                output::data(&text)?;
                return Ok(Exit::Fine);
            }
            // A folder, which is refused later.
            None if !matches!(workspace::resolve(what)?, Target::Missing(_)) => {}
            None => return Err(definition::unknown(name)),
        }
    }
    let Archs { name, archs } = archs::all(what, args.arch.as_deref())?;
    let compiled = archs.iter().map(|arch| &arch.compiled);
    if args.fields {
        return fields::show(compiled, args.json);
    }
    let archs: Vec<arch::Shown> = compiled
        .map(|compiled| {
            arch::Shown::from_compiled(compiled, analyse(&compiled.graph, args.seq_len))
        })
        .collect();
    if args.json {
        output::json(&arch::json(args.seq_len, &archs))?;
    } else {
        let texts: Vec<String> = archs.iter().map(|shown| shown.text(&name)).collect();
        output::data(&texts.join("\n"))?;
    }
    Ok(Exit::Fine)
}

/// The argument as a name that std may have, or its own file; an existing file of that name takes precedence.
fn word(what: &Path) -> Option<&str> {
    let text = what.to_str()?;
    if definition::is_file(text) {
        return Some(text);
    }
    let word = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (word && !what.is_file() && !workspace::is_model(what)).then_some(text)
}
