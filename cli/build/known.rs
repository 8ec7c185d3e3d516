//! Results shared within one build: each recipe is resolved once, each arch compiled once, however many comparisons
//! name them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use compiler::program::Compiled;
use dsl::{Diagnostic, FileId, Sources};
use lab::comparison::NoComparison;
use lab::experiment::{Experiment, LockedArch};
use lab::lock::Lock;
use lab::recipe::choose::{self, NoChoice};
use lab::recipe::comparison::{ArmFile, ComparisonRow};
use lab::recipe::{self, ArchRef};
use lab::verdict;

use super::stem;
use crate::archs::{self, Archs};
use crate::extensions::suites;
use crate::fail::{Exit, Failure, shown};
use crate::load::{self, Content};
use crate::workspace::refuse;
use crate::{files, output};

/// A recipe, and the arch that replaces its own, if any.
type Key = (PathBuf, Option<ArchRef>);

#[derive(Default)]
pub struct Known {
    /// Whether standard output is for JSON alone, so that verdicts go to standard error.
    pub json: bool,
    recipes: BTreeMap<Key, Rc<Vec<Experiment>>>,
    archs: BTreeMap<ArchRef, Rc<LockedArch>>,
}

/// Loads a TOML file as a source that diagnostics can point into.
pub(super) fn toml(file: &Path) -> Result<(Sources, FileId), Failure> {
    let text = match load::read(file) {
        Ok(Content::Text(text)) => text,
        Ok(Content::Not(load::Trouble::NotText(_))) => {
            return Err(Failure::bad_input(format!("`{}` is not UTF-8 text", shown(file)))
                .help("save it as UTF-8"));
        }
        Ok(Content::Not(load::Trouble::TooLarge(_))) => {
            return Err(Failure::bad_input(format!("`{}` is too large for a recipe", shown(file)))
                .help("a recipe is a short text: name another file"));
        }
        Err(error) => return Err(files::missing(file, &error)),
    };
    let mut sources = Sources::new();
    let id = sources.add(load::name(file), text);
    Ok((sources, id))
}

/// Shows diagnostics; an error among them ends the command.
fn judge(sources: &Sources, found: &[Diagnostic]) -> Result<(), Failure> {
    output::diagnostics(sources, found);
    let bad = found.iter().any(Diagnostic::is_error);
    if bad { Err(Failure::shown(Exit::BadInput)) } else { Ok(()) }
}

impl Known {
    /// The experiments of a recipe, in order; `arch` replaces the recipe's own arch.
    pub fn recipe(
        &mut self,
        file: &Path,
        arch: Option<&ArchRef>,
    ) -> Result<Rc<Vec<Experiment>>, Failure> {
        let key = (file.to_owned(), arch.cloned());
        if let Some(made) = self.recipes.get(&key) {
            return Ok(made.clone());
        }
        let (sources, id) = toml(file)?;
        let (read, found) = recipe::read(&sources, id);
        judge(&sources, &found)?;
        let Some(mut read) = read else { return Err(Failure::shown(Exit::BadInput)) };
        let suites = match suites().resolve(&mut read, &sources) {
            Ok(suites) => suites,
            Err(found) => {
                judge(&sources, &[*found])?;
                None
            }
        };
        if let Some(arch) = arch {
            read.use_arch(arch);
        }
        let mut failed = false;
        for (named, span) in &read.archs {
            if let Err(failure) = self.arch(named) {
                if failure.exit == Exit::Machine {
                    return Err(failure);
                }
                failed = true;
                match &failure.message {
                    Some(message) => {
                        let mut d = Diagnostic::error("bad-arch", *span, message.clone());
                        d.help = failure.help;
                        output::diagnostics(&sources, &[d]);
                    }
                    None => output::failure(&failure),
                }
            }
        }
        if failed {
            return Err(Failure::shown(Exit::BadInput));
        }
        let source = sources.name(id);
        let stem = stem(Path::new(source))?;
        let (made, found) =
            read.experiments(&stem, source, &|named| self.archs.get(named).cloned());
        judge(&sources, &found)?;
        let unasked = suites.and_then(|suites| suites.check(&read, &made));
        judge(&sources, unasked.as_slice())?;
        let made = Rc::new(made);
        self.recipes.insert(key, made.clone());
        Ok(made)
    }

    fn arch(&mut self, named: &ArchRef) -> Result<(), Failure> {
        if !self.archs.contains_key(named) {
            self.archs.insert(named.clone(), locked_arch(named)?);
        }
        Ok(())
    }

    /// The comparisons of a file, one for each of its rows.
    pub fn comparisons(&mut self, sources: &Sources, id: FileId) -> Result<Vec<Lock>, Failure> {
        let (read, found) = recipe::comparison::read(sources, id);
        judge(sources, &found)?;
        let Some(read) = read else { return Err(Failure::shown(Exit::BadInput)) };
        let source = sources.name(id);
        let stem = stem(Path::new(source))?;
        let mut made = Vec::new();
        let mut worst = None;
        for ComparisonRow { name: row, arms } in &read.rows {
            let name = row.as_deref().unwrap_or(&stem);
            let of = row.as_ref().map_or_else(String::new, |row| format!("`{row}`: "));
            let arms = arms.iter().map(|arm| {
                let at = match row {
                    Some(row) => read.span_of(&format!("sweep.{row}")),
                    None => read.span_of(&format!("arms.{}", arm.name)),
                };
                self.arm(arm).map_err(|failure| match failure.message {
                    Some(_) if failure.exit == Exit::Machine => failure,
                    Some(message) => {
                        let mut d = Diagnostic::error("bad-arm", at, format!("{of}{message}"));
                        d.help = failure.help;
                        output::diagnostics(sources, &[d]);
                        Failure::shown(Exit::BadInput)
                    }
                    None => failure,
                })
            });
            let arms = arms.collect::<Result<Vec<_>, Failure>>()?;
            match read.comparison(name, source, arms) {
                Ok(comparison) => {
                    crate::interim_looks::can_decide(&comparison).map_err(|why| why.at(source))?;
                    made.push(Lock::Comparison(comparison));
                }
                Err(why) => {
                    if let NoComparison::Confounded(_, verdict) = &why {
                        let text = verdict::text(verdict, false);
                        match self.json {
                            true => output::note(text.trim_end()),
                            false => output::data(&text)?,
                        }
                    }
                    let mut found = read.explain(&why);
                    for diagnostic in &mut found {
                        diagnostic.message.insert_str(0, &of);
                    }
                    output::diagnostics(sources, &found);
                    let confounded = matches!(why, NoComparison::Confounded(..));
                    let exit = if confounded { Exit::Finding } else { Exit::BadInput };
                    worst = worst.max(Some(exit));
                }
            }
        }
        worst.map_or(Ok(made), |exit| Err(Failure::shown(exit)))
    }

    /// The experiment that an arm names.
    fn arm(&mut self, arm: &ArmFile) -> Result<(String, Experiment), Failure> {
        let file = Path::new(&arm.recipe);
        if !file.is_file() {
            return Err(unchosen(choose::no_recipe(arm)));
        }
        let made = self.recipe(file, arm.arch.as_ref())?;
        let chosen = choose::experiment(arm, &made).map_err(unchosen)?;
        Ok((arm.name.clone(), chosen.clone()))
    }
}

fn unchosen(why: NoChoice) -> Failure {
    Failure::bad_input(why.message).help(why.help)
}

/// The arch that a recipe names, compiled from its file.
fn locked_arch(named: &ArchRef) -> Result<Rc<LockedArch>, Failure> {
    let path = Path::new(&named.path);
    let Archs { name: _, archs } = archs::all(path, named.name.as_deref())?;
    let made: Vec<Compiled> = archs.into_iter().map(|arch| arch.compiled).collect();
    let locked = LockedArch::new(choose::arch(named, &made).map_err(unchosen)?).map(Rc::new);
    locked.map_err(|error| refuse::bad_lock(path, error))
}
