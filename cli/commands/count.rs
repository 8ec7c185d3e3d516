//! `canonc count`: the number of parameters of each architecture of a file.

use std::path::PathBuf;

use clap::Args;
use compiler::analyse::analyse;
use serde::Serialize;

use crate::archs::{self, Archs};
use crate::fail::{Exit, Outcome};
use crate::output;

/// Count the parameters of every architecture in a file
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc count arch/llamacanon_1B.canon
  canonc count arch/llamacanon_1B.canon --json | jq '.archs[].parameters'

Prints a line `NAME N` for each architecture. Shared parameters count once. `canonc show` has the other counts.

Schema of --json: {schema: \"canonc.count.v1\", archs: [{name, parameters}]}.")]
pub struct CountArgs {
    /// A .canon file, a lock, or a run's folder
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON (`--help` shows the schema)
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    archs: Vec<Arch>,
}

#[derive(Serialize)]
struct Arch {
    name: String,
    parameters: i64,
}

pub fn count(args: &CountArgs) -> Outcome {
    let Archs { name: _, archs } = archs::all(&args.file, None)?;
    let archs = archs.into_iter().map(|arch| Arch {
        // No sequence is needed for a count of parameters.
        parameters: analyse(&arch.compiled.graph, 1).parameters,
        name: arch.compiled.name,
    });
    let document = Document { schema: "canonc.count.v1", archs: archs.collect() };
    if args.json {
        output::json(&document)?;
    } else {
        let line = |arch: &Arch| format!("{} {}\n", arch.name, arch.parameters);
        output::data(&document.archs.iter().map(line).collect::<String>())?;
    }
    Ok(Exit::Fine)
}
