//! Experiments made of texts.

use std::rc::Rc;

use compiler::program::Program;
use dsl::Sources;
use lab::experiment::{Experiment, LockedArch};
use lab::recipe::{self, ArchRef};

/// The experiments of a recipe, called `name`, whose archs are among the program's files, in whatever folder the recipe
/// seeks them. The error has every finding about the recipe.
pub fn experiments(
    program: &Program,
    name: &str,
    file: &str,
    text: &str,
) -> Result<Vec<Experiment>, String> {
    let mut sources = Sources::new();
    let id = sources.add(file, text);
    let (read, findings) = recipe::read(&sources, id);
    let Some(read) = read else { return Err(dsl::render(&sources, &findings)) };
    let compile = |wanted: &ArchRef| {
        let file = wanted.path.rsplit('/').next().unwrap();
        let arch = wanted.name.as_deref().or(file.strip_suffix(".canon")).unwrap();
        let (compiled, findings) = program.compile(file, arch);
        let compiled = compiled.unwrap_or_else(|| panic!("{}", program.render(&findings)));
        Some(Rc::new(LockedArch::new(&compiled).unwrap()))
    };
    let (experiments, findings) = read.experiments(name, file, &compile);
    if findings.is_empty() { Ok(experiments) } else { Err(dsl::render(&sources, &findings)) }
}
