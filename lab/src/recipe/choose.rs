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
pub fn arch<'c>(named: &ArchRef, archs: &'c [Compiled]) -> Result<&'c Compiled, NoChoice> {
    match archs {
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
pub fn experiment<'e>(
    arm: &ArmFile,
    experiments: &'e [Experiment],
) -> Result<&'e Experiment, NoChoice> {
    let ArmFile { name, recipe: path, arch: _, point } = arm;
    match (point.as_deref(), experiments) {
        (Some(point), _) => {
            if let Some(experiment) = experiments.iter().find(|experiment| experiment.name == point)
            {
                return Ok(experiment);
            }
            let nearest =
                dsl::suggest(point, experiments.iter().map(|experiment| experiment.name.as_str()));
            let help = nearest.map_or_else(
                || format!("`canonc build {path}` lists its locks"),
                |nearest| format!("did you mean `{path}#{nearest}`?"),
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
