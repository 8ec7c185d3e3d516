//! `canonc show`: the parts and costs of an architecture; or a standard definition.
//!
//! In: a file, `std`, a name, or a request for fields. Out: text or JSON on standard output. Must stay true: every
//! number comes from the graph (`compiler::analyse`), none is computed a second way; equal layers
//! are shown once with their numbers; the JSON follows the schema of `canonc show --help`.

mod arch;
mod definition;
mod fields;
mod recipe;
mod scale;

use std::path::Path;

use compiler::analyse::analyse;

use crate::args::ShowArgs;
use crate::fail::{self, Exit, Failure, Outcome};
use crate::named::{self, Named};
use crate::{archs, files, output, runs};

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
            None if what.exists()
                || named::named(Path::new(runs::FOLDER), what)? != Named::Nothing => {}
            None => return Err(definition::unknown(name)),
        }
    }
    let archs::Archs { name, found } = archs::all(what, args.arch.as_deref())?;
    let compiled = found.iter().map(|found| &found.compiled);
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
    (word && !what.is_file() && !files::is_foreign(what)).then_some(text)
}
