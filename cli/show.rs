//! `canonc show`: what an architecture is made of and what it costs; or a standard definition.
//!
//! In: a file, `std`, or a name. Out: text or JSON on standard output. Must stay true: every number
//! comes from the graph (`compiler::analyse`), none is computed twice by other rules; equal layers
//! are shown once with their numbers; the JSON is the schema of `canonc show --help`.

mod arch;
mod definition;

use std::path::Path;

use compiler::analyse::analyse;

use crate::args::ShowArgs;
use crate::fail::{Exit, Failure, Outcome};
use crate::{load, output};

pub(crate) fn show(args: &ShowArgs) -> Outcome {
    if let Some(name) = word(&args.what) {
        match definition::text(name) {
            Some(_) if args.json => {
                return Err(Failure::bad_input(format!(
                    "`--json` is for archs, `{name}` is a name"
                ))
                .help(format!("`canonc show {name}` prints its text")));
            }
            Some(text) => {
                output::data(&text)?;
                return Ok(Exit::Fine);
            }
            // A folder, which is refused as one.
            None if args.what.exists() => {}
            None => return Err(definition::unknown(name)),
        }
    }
    let load::Archs { name, found } = load::archs(&args.what, args.arch.as_deref())?;
    let compiled = found.iter().map(|found| &found.compiled);
    let archs: Vec<arch::Shown> = compiled
        .map(|compiled| arch::Shown::of(compiled, analyse(&compiled.graph, args.seq_len)))
        .collect();
    if args.json {
        output::json(&arch::json(args.seq_len, &archs))?;
    } else {
        let texts: Vec<String> = archs.iter().map(|shown| shown.text(&name)).collect();
        output::data(&texts.join("\n"))?;
    }
    Ok(Exit::Fine)
}

/// The argument as a name that std may have; a file of that name comes first.
fn word(what: &Path) -> Option<&str> {
    let text = what.to_str()?;
    let word = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (word && !what.is_file()).then_some(text)
}
