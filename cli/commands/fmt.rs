//! `canonc fmt`: formats sources in place.
//!
//! A file with errors is left unchanged while the others are formatted.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use dsl::limits::MAX_SOURCE_BYTES;
use dsl::{Diagnostic, Sources};

use crate::fail::{Exit, Failure, Outcome};
use crate::files::{canon_files, replace};
use crate::load::{Content, Trouble, name, read, source_too_large};
use crate::output;

/// Format .canon files in place
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc fmt arch std               every .canon file in both folders
  canonc fmt --check arch           lists unformatted files and exits 1 if there are any
  canonc fmt - < a.canon > b.canon  from standard input to standard output")]
pub struct FmtArgs {
    /// .canon files, or folders that contain some; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Write nothing; list unformatted files, and exit 1 if there are any
    #[arg(long)]
    pub check: bool,
}

pub fn fmt(args: &FmtArgs) -> Outcome {
    let mut exit = Exit::Fine;
    let (mut files, mut changed) = (0, 0);
    for argument in &args.files {
        if argument == Path::new("-") {
            exit = exit.max(stdin(args.check)?);
            continue;
        }
        let found = canon_files(argument).unwrap_or_else(|failure| {
            output::failure(&failure);
            exit = exit.max(failure.exit);
            Vec::new()
        });
        for path in found {
            files += 1;
            match file(&path, args.check) {
                Ok(Done::Same) => {}
                Ok(Done::Changed) => {
                    changed += 1;
                    if args.check {
                        output::data(&format!("{}\n", name(&path)))?;
                        exit = exit.max(Exit::Finding);
                    }
                }
                Err(failure) => {
                    output::failure(&failure);
                    exit = exit.max(failure.exit);
                }
            }
        }
    }
    if files > 0 {
        let what = if args.check { "not formatted" } else { "formatted" };
        output::note(&format!("{}, {changed} {what}", output::counted(files, "file")));
    }
    Ok(exit)
}

enum Done {
    Same,
    /// Written, or with `--check` due to be written.
    Changed,
}

fn file(path: &Path, check: bool) -> Result<Done, Failure> {
    let content = read(path).map_err(|error| Failure::cannot_read(path, &error))?;
    let mut sources = Sources::new();
    let (before, after) = formatted(&mut sources, &name(path), content)?;
    if before == after {
        return Ok(Done::Same);
    }
    if !check {
        replace(path, &after)?;
    }
    Ok(Done::Changed)
}

fn stdin(check: bool) -> Outcome {
    let mut bytes = Vec::new();
    let limit = MAX_SOURCE_BYTES as u64 + 1;
    let path = Path::new("standard input");
    std::io::stdin()
        .lock()
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::cannot_read(path, &error))?;
    let mut sources = Sources::new();
    let (before, after) = formatted(&mut sources, "<stdin>", Content::from_bytes(bytes))?;
    if !check {
        output::exact(&after)?;
        return Ok(Exit::Fine);
    }
    if before == after {
        return Ok(Exit::Fine);
    }
    output::data("<stdin>\n")?;
    Ok(Exit::Finding)
}

/// The text and its formatted form, or a failure after its diagnostics have been shown.
fn formatted(
    sources: &mut Sources,
    name: &str,
    content: Content,
) -> Result<(String, String), Failure> {
    let found: Vec<Diagnostic> = match content {
        Content::Text(text) => {
            let id = sources.add(name, text.clone());
            match dsl::format_source(id, &text) {
                Ok(after) => return Ok((text, after)),
                Err(found) => found,
            }
        }
        Content::Not(Trouble::NotText(bytes)) => {
            let id = sources.add(name, String::from_utf8_lossy(&bytes));
            dsl::parse_bytes(id, &bytes).1
        }
        Content::Not(Trouble::TooLarge(bytes)) => {
            vec![source_too_large(sources.add(name, ""), bytes)]
        }
    };
    output::diagnostics(sources, &found);
    Err(Failure::shown(Exit::BadInput))
}
