//! Finds the one arch or experiment that a reference means. A reference without a name means the only one in its file.

use compiler::program::Compiled;

use super::ArchRef;
use super::comparison::ArmFile;
use crate::experiment::Experiment;

/// Why a reference cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoChoice {
    /// What is wrong.
    pub message: String,
    /// What to type instead.
    pub help: String,
}

/// The arch that a recipe names, of those that its file makes under this name; without a name, of all.
pub fn arch<'c>(named: &ArchRef, made: &'c [Compiled]) -> Result<&'c Compiled, NoChoice> {
    match made {
        [one] => Ok(one),
        several => {
            let names: Vec<&str> = several.iter().map(|arch| arch.name.as_str()).collect();
            let first = names.first().copied().unwrap_or("NAME");
            Err(NoChoice {
                message: format!(
                    "`{}` defines {} archs: {}",
                    named.path,
                    names.len(),
                    names.join(", ")
                ),
                help: format!("choose one: `arch = \"…/{}#{first}\"`", named.path),
            })
        }
    }
}

/// The error for an arm whose recipe does not exist.
pub fn no_recipe(arm: &ArmFile) -> NoChoice {
    NoChoice {
        message: format!("arm `{}`: `{}` does not exist", arm.name, arm.recipe),
        help: "an arm is the path of a recipe, relative to this file".to_owned(),
    }
}

/// The experiment that an arm names, of those that its recipe makes.
pub fn experiment<'e>(arm: &ArmFile, made: &'e [Experiment]) -> Result<&'e Experiment, NoChoice> {
    let ArmFile { name, recipe: path, arch: _, point } = arm;
    match (point.as_deref(), made) {
        (Some(point), _) => {
            if let Some(experiment) = made.iter().find(|made| made.name == point) {
                return Ok(experiment);
            }
            let near = dsl::suggest(point, made.iter().map(|made| made.name.as_str()));
            let help = near.map_or_else(
                || format!("`canonc build {path}` lists its locks"),
                |near| format!("did you mean `{path}#{near}`?"),
            );
            let message = format!("arm `{name}`: `{path}` has no lock `{point}`");
            Err(NoChoice { message, help })
        }
        (None, [only]) => Ok(only),
        (None, several) => {
            let first = several.first().map_or("NAME", |first| first.name.as_str());
            let help = "an arm is one experiment: move the recipe's [sweep] to the comparison's [grid], or name \
                 one of its locks, as in";
            Err(NoChoice {
                message: format!("arm `{name}`: `{path}` has {} locks", several.len()),
                help: format!("{help} `{path}#{first}`"),
            })
        }
    }
}
