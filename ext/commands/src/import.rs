//! `canonc import`: converts a model or recipe of Hugging Face or Lingua.

use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use interop::import::{Imported, Request, read};
use lab::experiment::LockedArch;
use lab::recipe;
use serde::Serialize;

use cli::fail::{Exit, Failure, Outcome, shown};
use cli::options::within;
use cli::output;

/// Import a model or recipe from Hugging Face or Lingua: arch, recipe, weights
#[derive(Args, Debug)]
#[command(
    after_help = "\
Examples:
  canonc import LlamaCanon-1B/ --out imported        a Hugging Face folder or a Lingua release
  canonc import release/default --out imported       one variant of a release
  canonc import recipe.yaml --devices 128 --out new  a recipe of Lingua's trainer
  canonc import config.json --no-weights --out new   the arch alone

Exit codes: 0 imported, 2 the source is inconsistent, has no weights or cannot be expressed.",
    after_long_help = "\
Examples:
  canonc import LlamaCanon-1B/ --out imported        a Hugging Face folder or a Lingua release
  canonc import release/default --out imported       one variant of a release
  canonc import recipe.yaml --devices 128 --out new  a recipe of Lingua's trainer
  canonc import config.json --no-weights --out new   the arch alone
  canonc serve imported                              any command takes the folder as a model

Reads   config.json with model.safetensors or pytorch_model.bin, one file or shards, of the classes
        {classes};
        params.json with consolidated.pth; a release: a folder with config.json, and with those two in default/;
        *.yaml of Lingua's trainer. Files of torch.save are read without running any code in them.
Writes  OUT/arch/NAME.canon, OUT/recipes/NAME.toml if the source says how it trains, OUT/weights.safetensors
        if it has weights (f32, under the paths that `canonc show` lists), copies of tokenizer.json,
        tokenizer_config.json, chat_template.jinja and generation_config.json, and OUT/import.toml: digests of every
        file that was read, the context (max_position_embeddings), ids of bos and eos, what was left out and why, and
        tensors with other values (the norms of Gemma 2 multiply by 1 + weight, so 1 is added). OUT is a model
        for `eval`, `serve`, `generate`, `forward` and `export`, as the folder was; so is an arch with --weights OUT.
        OUT is written completely or not at all. To import a model without weights, add --no-weights.

A step has devices x grad_acc_steps x batch_size x seq_len tokens. Published recipes give the number of GPUs only
in a comment (`# Zeyuan note: run with 512 GPUs to replicate our result`), so --devices is required.

Exit codes: 0 imported, 2 the source is inconsistent, has no weights or cannot be expressed.
Schema of --json: {schema: \"canonc.import.v1\", name, arch, recipe, weights (null if there are none),
  graph, manifest, parameters, files: [path], copied: [path], context (tokens; null if unknown),
  left_out: [{name, why}]}."
)]
pub struct ImportArgs {
    /// A folder with config.json or params.json, either file, or a .yaml
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// The folder to create; it must be empty or missing
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Name for the arch [default: from the folder or file]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Number of devices of the run, if the recipe does not give it
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = within::<i64>(1, 1 << 20))]
    pub devices: Option<i64>,
    /// Import only the arch and recipe
    #[arg(long)]
    pub no_weights: bool,
    /// Print a summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// Most omissions that are listed one by one.
const TOLD: usize = 12;

pub fn import(args: &ImportArgs) -> Outcome {
    let ImportArgs { source, out, name, devices, no_weights, json } = args;
    let folder = cli::out::real_folder(out)?;
    let request =
        Request { source, name: name.as_deref(), devices: *devices, weights: !no_weights };
    let imported = read(&request)?;
    if !no_weights && !imported.looked_for.is_empty() {
        let places: Vec<String> =
            imported.looked_for.iter().map(|path| format!("`{}`", shown(path))).collect();
        let message = format!("this model has no weights: there is no {}", places.join(", no "));
        let (message, help) = match imported.unread.as_slice() {
            [] => {
                (message, "add the weights, or use --no-weights to import only the arch and recipe")
            }
            unread => (
                format!("{message}; not read: {}", unread.join(", ")),
                "rename the file with the weights to one of these names if it is safetensors or was written by \
                 torch.save; or use --no-weights to import only the arch and recipe",
            ),
        };
        return Err(Failure::bad_input(message).at(shown(source)).help(help));
    }
    check_recipe(&imported, args)?;
    imported.write(&folder)?;
    let report = Report::from_import(&imported, out);
    if *json {
        output::json(&report)?;
        return Ok(Exit::Fine);
    }
    let Report { name, arch, recipe, weights, parameters, files, copied, left_out, .. } = report;
    output::data(&format!("{arch}\n"))?;
    let read = files.len() - copied.len();
    for path in [recipe, weights].into_iter().flatten().chain(copied) {
        output::data(&format!("{path}\n"))?;
    }
    output::note(&format!(
        "`{name}`: {} out of {}",
        output::counted(parameters, "parameter"),
        output::counted(read, "file")
    ));
    if let Some((length, from)) = &imported.texts.context {
        let tokens = output::counted(*length, "token");
        output::note(&format!("context: {tokens} ({from})"));
    }
    let changed = imported.changed();
    if let Some(first) = changed.first() {
        let tensors = output::counted(changed.len(), "tensor");
        output::note(&format!("changed: {tensors}, listed in import.toml ({})", first.how));
    }
    // A line for each reason; settings of generation are many.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for LeftOut { name, why } in &left_out {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    for (why, names) in reasons.iter().take(TOLD) {
        output::note(&format!("left out: {} ({why})", names.join(", ")));
    }
    if reasons.len() > TOLD {
        let more = reasons.iter().skip(TOLD).map(|(_, names)| names.len()).sum::<usize>();
        output::note(&format!("and {more} more, listed in import.toml"));
    }
    Ok(Exit::Fine)
}

/// Checks that the recipe makes an experiment: its budget and batch may contradict each other. An imported model is
/// useful even then; a recipe alone is not.
fn check_recipe(imported: &Imported, args: &ImportArgs) -> Result<(), Failure> {
    let Some(text) = imported.recipe() else { return Ok(()) };
    let arch = LockedArch::new(&imported.compiled)
        .map_err(|error| Failure::bad_input(error.message).help(error.help))?;
    let arch = Rc::new(arch);
    let mut sources = dsl::Sources::new();
    let file = sources.add(format!("recipes/{}.toml", imported.name), &text);
    let (recipe, mut found) = recipe::read(&sources, file);
    if let Some(recipe) = recipe {
        found.extend(recipe.experiments(&imported.name, "", &|_| Some(Rc::clone(&arch))).1);
    }
    if found.iter().any(dsl::Diagnostic::is_error) {
        let has_model = !imported.from_recipe;
        if has_model && !args.json {
            let why: Vec<&str> = found.iter().map(|d| d.message.as_str()).collect();
            output::note(&format!("the recipe of the source cannot be built: {}", why.join("; ")));
        }
        if has_model {
            return Ok(());
        }
        output::diagnostics(&sources, &found);
        let file = imported.files.first().map(|file| shown(&file.path)).unwrap_or_default();
        return Err(Failure::bad_input("its training settings do not make an experiment").at(file));
    }
    Ok(())
}

/// The `--json` document; the schema is in `canonc import --help`.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    name: String,
    arch: String,
    recipe: Option<String>,
    weights: Option<String>,
    graph: String,
    manifest: String,
    parameters: u64,
    files: Vec<String>,
    copied: Vec<String>,
    context: Option<u64>,
    left_out: Vec<LeftOut>,
}

#[derive(Serialize)]
struct LeftOut {
    name: String,
    why: String,
}

impl Report {
    fn from_import(imported: &Imported, out: &std::path::Path) -> Report {
        let name = imported.name.clone();
        let at = |rest: String| shown(&out.join(rest));
        let identity = &imported.compiled.identity;
        let elements = |shape: &[i64]| shape.iter().map(|n| *n as u64).product::<u64>();
        Report {
            schema: "canonc.import.v1",
            arch: at(format!("arch/{name}.canon")),
            recipe: imported.training.as_ref().map(|_| at(format!("recipes/{name}.toml"))),
            weights: imported.weights.as_ref().map(|_| at("weights.safetensors".to_owned())),
            graph: identity.graph.to_string(),
            manifest: identity.manifest.to_string(),
            parameters: imported.params().iter().map(|p| elements(&p.shape)).sum(),
            files: imported.files.iter().map(|file| shown(&file.path)).collect(),
            copied: imported.copied.iter().map(|file| at(file.name.to_owned())).collect(),
            context: imported.texts.context.as_ref().map(|(length, _)| *length),
            left_out: imported
                .left_out
                .iter()
                .map(|idle| LeftOut { name: idle.name.clone(), why: idle.reason.clone() })
                .collect(),
            name,
        }
    }
}
