//! Errors in recipes and comparison files, one constructor each. Each names the key, and both values if there are two, and
//! says what to type.

use dsl::{Diagnostic, Span};

use tasks::task::{self, Definition};

use crate::comparison::SelectionMode;
use crate::field::{self, FieldDef};

pub(super) fn not_toml(at: Span, reason: &str) -> Diagnostic {
    Diagnostic::error("not-toml", at, format!("this is not TOML: {reason}"))
        .help("one fact a line: `key = value`, strings in quotes, sections as `[section]`")
}

pub(super) fn too_large(at: Span, bytes: usize, limit: usize) -> Diagnostic {
    let message = format!("the file has {}", dsl::over(bytes as u64, limit as u64));
    Diagnostic::error("source-too-large", at, message).help("a recipe is usually about a page long")
}

pub(super) fn unknown_key(key: Span, path: &str, others: &[&str]) -> Diagnostic {
    if let Some(what) = not_done(path) {
        let message = format!("`{path}` asks for {what}, which canonc does not do");
        return Diagnostic::error("unknown-key", key, message).help(format!(
            "{what} changes the bits of a result, so nothing else is done in its place: remove it, and divide the work \
             with `devices` and `shard` in `[platform]`, which change none"
        ));
    }
    let d = Diagnostic::error("unknown-key", key, format!("`{path}` is not a field"));
    let name = path.strip_prefix("data.").unwrap_or_default();
    if let Some((task, name)) = name.split_once('.')
        && let Some(task) = Definition::find(task)
    {
        return d.help(in_task(task, name));
    }
    if Definition::find(name).is_some() {
        return d.help(format!("a task is a table: write its parameters under [data.{name}]"));
    }
    let has = |task: &Definition| {
        let mut parameters = task.in_recipes().into_iter();
        parameters.any(|known| known.name() == name || known.also.contains(&name))
    };
    let tables: Vec<String> =
        task::names_where(has).into_iter().map(|task| format!("[data.{task}]")).collect();
    if !tables.is_empty() {
        return d.help(format!(
            "each task has its own table: write `{name}` under {}",
            tables.join(" or ")
        ));
    }
    let nearest = field::suggest(path).or_else(|| dsl::suggest(path, others.iter().copied()));
    match nearest {
        Some(nearest) => match (nearest.split_once('.'), path.split_once('.')) {
            (Some((section, last)), Some((written, _))) if section == written => d.mean(last),
            (Some((section, last)), _) => {
                d.help(format!("did you mean `{last}` in `[{section}]`?"))
            }
            (None, _) => d.help(format!("did you mean `{nearest}`?")),
        },
        None => {
            let section = path.split('.').next().unwrap_or(path);
            let mut known: Vec<&str> = field::writable()
                .filter(|def| def.section() == section)
                .filter_map(|def| def.path.split_once('.').map(|(_, rest)| rest))
                .collect();
            known.dedup();
            if known.is_empty() {
                d.help(format!("the sections are {}", sections().join(", ")))
            } else {
                d.help(format!("`[{section}]` has {}", known.join(", ")))
            }
        }
    }
}

/// Ways of training that other trainers have and canonc refuses, by the names of their keys.
const NOT_DONE: [(&str, &[&str]); 5] = [
    (
        "tensor parallelism",
        &[
            "tensor_model_parallel_size",
            "tensor_parallel",
            "tensor_parallelism",
            "tp",
            "tp_degree",
            "tp_size",
        ],
    ),
    (
        "pipeline parallelism",
        &[
            "pipeline_model_parallel_size",
            "pipeline_parallel",
            "pipeline_parallelism",
            "pp",
            "pp_degree",
            "pp_size",
        ],
    ),
    (
        "context parallelism",
        &[
            "context_parallel",
            "context_parallel_size",
            "context_parallelism",
            "cp",
            "cp_size",
            "sequence_parallel",
        ],
    ),
    ("expert parallelism", &["ep", "ep_size", "expert_model_parallel_size", "expert_parallel"]),
    ("fp8", &["float8", "float8_filter", "float8_recipe", "fp8", "fp8_format", "fp8_recipe"]),
];

/// What a key of another trainer asks for, if canonc refuses it.
fn not_done(path: &str) -> Option<&'static str> {
    let last = path.rsplit('.').next().unwrap_or(path).to_lowercase();
    let refused = NOT_DONE.iter().find(|(_, names)| names.contains(&last.as_str()));
    refused.map(|(what, _)| *what)
}

/// What to write instead of an unknown parameter of a task.
fn in_task(task: &Definition, name: &str) -> String {
    let in_recipes = task.in_recipes();
    let parameters = || in_recipes.iter().map(|known| known.name());
    let renamed = in_recipes.iter().find(|known| known.also.contains(&name));
    let case = parameters().find(|known| known.eq_ignore_ascii_case(name));
    let known_name = renamed.map(|known| known.name()).or(case);
    match known_name.or_else(|| dsl::suggest(name, parameters())) {
        Some(known_name) => format!("did you mean `{known_name}`?"),
        None if field::find(&format!("data.{name}")).is_some() => {
            format!("`{name}` belongs under [data]")
        }
        None => {
            let known: Vec<&str> = parameters().collect();
            format!("[data.{}] has {}", task.name, known.join(", "))
        }
    }
}

/// The sections of a recipe.
fn sections() -> Vec<&'static str> {
    let mut sections: Vec<&str> =
        field::writable().map(FieldDef::section).filter(|section| !section.is_empty()).collect();
    sections.push("sweep");
    sections.sort_unstable();
    sections.dedup();
    sections
}

/// Most keys of an unknown section that are looked for in other sections.
const MAX_KEYS: usize = 4;

/// A table that holds no field, with the keys in it.
pub(super) fn unknown_section<'k>(
    at: Span,
    section: &str,
    keys: impl Iterator<Item = &'k str>,
) -> Diagnostic {
    let d = Diagnostic::error("unknown-key", at, format!("a recipe has no section `[{section}]`"));
    let sections = sections();
    if let Some(task) = section.strip_prefix("data.") {
        let tasks = task::names();
        let nearest = dsl::suggest(&task.to_lowercase(), tasks.iter().copied());
        return d.help(match nearest {
            Some(nearest) => format!("did you mean `[data.{nearest}]`?"),
            None => format!("the tasks with a table are {}", tasks.join(", ")),
        });
    }
    if let Some(nearest) = dsl::suggest(section, sections.iter().copied()) {
        return d.help(format!("did you mean `[{nearest}]`?"));
    }
    let homes: Vec<String> = keys
        .filter_map(|key| {
            let (_, last) = key.rsplit_once('.')?;
            let def = field::find(field::suggest(key)?)?;
            let (home, field_name) = def.path.split_once('.')?;
            Some(format!("`{last}`: did you mean `{field_name}` in `[{home}]`?"))
        })
        .take(MAX_KEYS)
        .collect();
    match homes.is_empty() {
        true => d.help(format!("the sections are {}", sections.join(", "))),
        false => homes.into_iter().fold(d, Diagnostic::help),
    }
}

/// A table that a comparison file does not have.
pub(super) fn unknown_comparison_section(at: Span, section: &str, known: &[&str]) -> Diagnostic {
    if let Some(renamed) = renamed_comparison_key(at, section) {
        return renamed;
    }
    let message = format!("a comparison has no section `[{section}]`");
    let d = Diagnostic::error("unknown-key", at, message);
    match dsl::suggest(section, known.iter().copied()) {
        Some(nearest) => d.help(format!("did you mean `[{nearest}]`?")),
        None => d
            .help(format!("its sections are {}", known.join(", ")))
            .help("training settings belong in the recipes of the arms"),
    }
}

pub(super) fn derived_key(key: Span, def: &FieldDef) -> Diagnostic {
    let message = format!("`{}` is derived and cannot be set", def.path);
    Diagnostic::error("derived-key", key, message)
        .here(def.doc.trim_end_matches('.'))
        .help("leave it out: the lock shows its value")
}

pub(super) fn bad_value(at: Span, path: &str, reason: &str) -> Diagnostic {
    Diagnostic::error("bad-value", at, format!("`{path}`: {reason}")).help(
        match field::find(path) {
            Some(def) => {
                format!("{path} is {}: {}", def.kind.describe(), def.doc.trim_end_matches('.'))
            }
            None => "correct the value".to_owned(),
        },
    )
}

pub(super) fn missing_arch(at: Span) -> Diagnostic {
    Diagnostic::error("missing-arch", at, "the recipe does not name an arch")
        .help("add `arch = \"../arch/llama_tiny.canon\"`, a path relative to this file")
}

pub(super) fn bad_arch(at: Span, written: &str) -> Diagnostic {
    Diagnostic::error("bad-arch", at, format!("`arch`: {written} is not a .canon file"))
        .help("write a path relative to this file with `/`, such as \"../arch/llama_tiny.canon\"")
        .help("if the file has several archs, add the name: \"../arch/family.canon#llama_1B\"")
}

pub(super) fn swept_and_fixed(sweep: Span, path: &str, fixed: Span) -> Diagnostic {
    Diagnostic::error("swept-and-fixed", sweep, format!("`{path}` is both fixed and swept"))
        .here("swept here")
        .label(fixed, "fixed here")
        .help("keep one of the two")
}

pub(super) fn swept_twice(at: Span, path: &str, before: Span) -> Diagnostic {
    Diagnostic::error("swept-twice", at, format!("`{path}` is swept twice"))
        .label(before, "first here")
        .help("keep one of the two")
}

pub(super) fn not_a_list(at: Span, path: &str, got: &str) -> Diagnostic {
    Diagnostic::error("not-a-list", at, format!("`{path}`: {got} is not a list of values"))
        .help(format!("write `{path} = [{got}]`, with one value or more"))
}

pub(super) fn empty_list(at: Span, path: &str) -> Diagnostic {
    Diagnostic::error("empty-list", at, format!("`{path}` has no values"))
        .help("give it at least one, or leave it out")
}

pub(super) fn not_a_tuple(at: Span, path: &str, got: &str, want: usize) -> Diagnostic {
    let message = format!("`{path}`: {got} is not a list of {want}, one value for each key");
    Diagnostic::error("not-a-tuple", at, message)
        .help("write `\"optimizer.lr, optimizer.weight_decay\" = [[0.002, 0.02], [0.003, 0.0133]]`")
}

pub(super) fn value_twice(at: Span, path: &str, value: &str) -> Diagnostic {
    Diagnostic::error("value-twice", at, format!("`{path}` lists {value} twice"))
        .help("equal points would be the same lock: leave one out")
}

pub(super) fn bad_point_name(at: Span, got: &str) -> Diagnostic {
    Diagnostic::error("bad-name", at, format!("{got} cannot be part of a lock's name"))
        .help("write 1 to 80 letters, digits, `_`, `-` and `.` in quotes")
}

pub(super) fn names_alone(at: Span) -> Diagnostic {
    Diagnostic::error("names-alone", at, "a list of names alone varies nothing")
        .help("use the names to label another key: \"name, optimizer.lr\" = [[\"slow\", 0.001], [\"fast\", 0.003]]")
}

pub(super) fn name_twice(at: Span, name: &str) -> Diagnostic {
    Diagnostic::error("name-twice", at, format!("two points would be called `{name}`"))
        .help("give names that differ for each swept key")
}

pub(super) fn too_many_points(at: Span, points: usize, limit: usize) -> Diagnostic {
    Diagnostic::error("too-many-points", at, format!("this makes {points} locks; at most {limit}"))
        .help("split it into several files")
}

/// A problem of the whole experiment, reported at the field it is about.
pub(super) fn problem(at: Span, code: &'static str, message: &str, help: &str) -> Diagnostic {
    Diagnostic::error(code, at, message).help(help)
}

// Comparison files.

pub(super) fn missing_key(at: Span, key: &str, example: &str) -> Diagnostic {
    Diagnostic::error("missing-key", at, format!("the comparison has no `{key}`"))
        .help(format!("add `{example}`"))
}

pub(super) fn unknown_comparison_key(key: Span, path: &str, known: &[&str]) -> Diagnostic {
    let d = Diagnostic::error("unknown-key", key, format!("a comparison has no `{path}`"));
    match dsl::suggest(path, known.iter().copied()) {
        Some(nearest) => d.mean(nearest),
        None => d.help(format!("it has {}", known.join(", "))),
    }
}

/// A key, with its current name, that comparison files had before format version 3.
const RENAMED: [(&str, &str, &str); 2] = [
    ("again", "replicate", "write `[replicate]`, with the same lists of seeds"),
    (
        "selection.choose",
        "selection.mode",
        "write `mode = \"min\"` for \"least\" and `mode = \"max\"` for \"most\"",
    ),
];

/// The error for a key by its former name.
pub(super) fn renamed_comparison_key(key: Span, path: &str) -> Option<Diagnostic> {
    let (old, new, help) = RENAMED.iter().find(|(old, ..)| {
        path.strip_prefix(old).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })?;
    let message = format!("`{old}` is now called `{new}`");
    Some(Diagnostic::error("renamed-key", key, message).help(*help))
}

pub(super) fn no_such_arm(at: Span, name: &str, arms: &[&str]) -> Diagnostic {
    let d = Diagnostic::error("no-such-arm", at, format!("`{name}` is not an arm"));
    match dsl::suggest(name, arms.iter().copied()) {
        Some(nearest) => d.mean(nearest),
        None => d.help(format!("the arms are {}", arms.join(", "))),
    }
}

/// A name that is the base, which has no treatment, or no arm.
pub(super) fn not_treated(at: Span, name: &str, base: &str, others: &[&str]) -> Diagnostic {
    if name != base {
        return no_such_arm(at, name, others);
    }
    let message = format!("`{name}` is the base, with which the others are compared");
    Diagnostic::error("no-such-arm", at, message)
        .help(format!("the other arms are {}", others.join(", ")))
}

pub(super) fn too_few_arms(at: Span, arms: usize) -> Diagnostic {
    Diagnostic::error(
        "too-few-arms",
        at,
        format!("a comparison needs two arms or more; this has {arms}"),
    )
    .help("list them under `[arms]`, each as `name = \"recipe.toml\"`")
}

pub(super) fn bad_arm_name(at: Span, name: &str) -> Diagnostic {
    Diagnostic::error("bad-arm-name", at, format!("`{name}` is not a valid name for an arm"))
        .help("names of arms become parts of file names: use 1 to 40 letters, digits and `_`")
}

pub(super) fn wrong_shape(at: Span, path: &str, got: &str, want: &str) -> Diagnostic {
    Diagnostic::error("bad-value", at, format!("`{path}`: {got} is not {want}"))
        .help(format!("`{path}` must be {want}"))
}

pub(super) fn seed_counts(at: Span, path: &str, got: usize, want: usize) -> Diagnostic {
    let message = format!("`{path}` has {got} seeds, but another list has {want}");
    Diagnostic::error("seed-counts", at, message)
        .help("seeds are combined by position: give every list the same length, or length one")
}

pub(super) fn seeds_replicated(at: Span, pair: &str) -> Diagnostic {
    let message = format!("`replicate` repeats the seeds of a base run: {pair}");
    Diagnostic::error("seeds-replicated", at, message)
        .help("the A/A arm measures noise: give it init and data seeds that no run of the base has")
}

pub(super) fn bad_grid(at: Span, paths: &str, reason: &str) -> Diagnostic {
    Diagnostic::error("bad-value", at, format!("`grid`: `{paths}`: {reason}"))
        .help("write `\"optimizer.lr\" = [0.001, 0.002]`: every arm runs with each of these values")
}

/// A mode that would select the worst point.
pub(super) fn worst_mode(at: Span, metric: &str, best: SelectionMode) -> Diagnostic {
    let (better, word) = match best {
        SelectionMode::Min => ("lower", "min"),
        SelectionMode::Max => ("higher", "max"),
    };
    let message =
        format!("`selection.mode` selects the worst point: {metric} is better when {better}");
    Diagnostic::error("bad-value", at, message)
        .help(format!("write `mode = \"{word}\"`, or leave it out"))
}

pub(super) fn bad_match(at: Span, path: &str, reason: &str) -> Diagnostic {
    Diagnostic::error("bad-value", at, format!("`{path}`: {reason}")).help(
        "write `[match]` with on = \"parameters\" and within = 0.01, a share of the base's value",
    )
}

pub(super) fn compensates_itself(at: Span, arm: &str, entry: &str) -> Diagnostic {
    let message = format!("`{entry}` is in the treatment of `{arm}` and compensates for it");
    Diagnostic::error("compensates-itself", at, message).help(
        "leave it out of the treatment: compensate declares it for the matched arms. Where another arm has it as its \
         treatment, name the matched ones with arms = [\"...\"] under [match]",
    )
}

pub(super) fn bad_analysis(at: Span, path: &str, reason: &str) -> Diagnostic {
    Diagnostic::error("bad-value", at, format!("`{path}`: {reason}")).help(
        "write `[analysis]` with primary = \"eval_loss\", family = [\"eval_loss\", \"exact_match\"], margin = 0.01, \
         level = 0.05, stop = \"fixed\"; each can be left out",
    )
}

pub(super) fn nuisance_in_treatment(at: Span, path: &str) -> Diagnostic {
    let message = format!("`{path}` is in the treatment and also varied in every arm");
    Diagnostic::error("nuisance-in-treatment", at, message)
        .help("a field is either the treatment or a nuisance: keep one of the two")
}

pub(super) fn arm_without_recipe(span: Span, arm: &str, arch: &str) -> Diagnostic {
    Diagnostic::error(
        "missing-recipe",
        span,
        format!("arm `{arm}` names only the arch `{arch}`, and there is no recipe to train it with"),
    )
    .help("above the sections write `recipe = \"depo.toml\"`: it applies to every arm that names an arch")
}

pub(super) fn idle_recipe(span: Span) -> Diagnostic {
    Diagnostic::error(
        "idle-recipe",
        span,
        "every arm has its own recipe, so `recipe` has no effect",
    )
    .help("leave it out, or let arms name archs: `llama = \"../arch/llama.canon\"`")
}
