//! `canonc import`: converts a model or recipe of another program.
//!
//! In: a file or folder of Hugging Face or Lingua. Out: a folder with arch, recipe, weights and tokenizer; a list of
//! what was left out, on standard error. Must stay true: facts of the source that cannot be expressed are refused by name; the recipe
//! is checked against the field table before it is written.

use std::rc::Rc;

use interop::ForeignError;
use interop::import::{Imported, Request, read};
use lab::experiment::LockedArch;
use lab::recipe;
use serde::Serialize;

use crate::args::ImportArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::output;

/// Most omissions that are listed one by one.
const TOLD: usize = 12;

pub fn import(args: &ImportArgs) -> Outcome {
    let ImportArgs { source, out, name, devices, no_weights, json } = args;
    let folder = crate::out::real_folder(out)?;
    let request =
        Request { source, name: name.as_deref(), devices: *devices, weights: !no_weights };
    let imported = read(&request).map_err(failure)?;
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
    imported.write(&folder).map_err(failure)?;
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

pub fn failure(error: ForeignError) -> Failure {
    let ForeignError { place, message, help, machine } = error;
    let failure =
        if machine { Failure::machine(message) } else { Failure::bad_input(message) }.at(place);
    if help.is_empty() { failure } else { failure.help(help) }
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
                .map(|idle| LeftOut { name: idle.name.clone(), why: idle.why.clone() })
                .collect(),
            name,
        }
    }
}
