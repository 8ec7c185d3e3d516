//! The parameters of tasks as recipes write them.
//!
//! In: nothing. Out: for each parameter its path, the values it takes, its default and its meaning. Must stay true: this
//! is the only home of bounds and defaults; generators and recipes read them here.

use super::TaskError;

/// One parameter of a task.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its path in a recipe: `data.depo.N`.
    pub path: &'static str,
    /// The values it takes.
    pub values: Values,
    /// Its value when it is not given.
    pub default: Default,
    /// Its meaning, as sentences for help texts.
    pub doc: &'static str,
    /// Other common names, which are suggested but never accepted.
    pub also: &'static [&'static str],
}

/// The values that a parameter takes.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// An integer from the first bound to the second, both included.
    Int(i64, i64),
    /// `true` or `false`.
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Some of these letters.
    Letters(&'static str),
    /// A list of integers.
    Ints(i64, i64),
}

/// A parameter's value when it is not given.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// It has to be given.
    Required,
    /// As TOML.
    Is(&'static str),
    /// Computed from other parameters; the text says how.
    Follows(&'static str),
}

pub(super) const fn parameter(
    path: &'static str,
    values: Values,
    default: Default,
    doc: &'static str,
) -> Parameter {
    Parameter { path, values, default, doc, also: &[] }
}

impl Parameter {
    pub(super) const fn also(self, also: &'static [&'static str]) -> Parameter {
        Parameter { also, ..self }
    }

    /// Whether it has no default.
    pub fn is_required(&self) -> bool {
        matches!(self.default, Default::Required)
    }

    /// `N` of `data.depo.N`.
    pub fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }
}

fn find(parameters: &'static [Parameter], name: &str) -> Option<&'static Parameter> {
    parameters.iter().find(|parameter| parameter.name() == name)
}

/// An integer parameter's bounds.
pub(super) fn bounds(parameters: &'static [Parameter], name: &str) -> (i64, i64) {
    match find(parameters, name).map(|parameter| parameter.values) {
        Some(Values::Int(least, most) | Values::Ints(least, most)) => (least, most),
        Some(Values::Bool | Values::Word(_) | Values::Letters(_)) | None => (i64::MIN, i64::MAX),
    }
}

/// An integer parameter's default.
pub(super) fn default_int(parameters: &'static [Parameter], name: &str) -> i64 {
    match find(parameters, name).map(|parameter| parameter.default) {
        Some(Default::Is(value)) => value.parse().unwrap_or(0),
        Some(Default::Required | Default::Follows(_)) | None => 0,
    }
}

/// A switch's default.
pub(super) fn default_bool(parameters: &'static [Parameter], name: &str) -> bool {
    matches!(find(parameters, name).map(|p| p.default), Some(Default::Is("true")))
}

/// `value` as u32 if it is in `low..=high`; otherwise an error with the parameter's name and the bounds.
pub(super) fn bounded(
    task: &str,
    name: &'static str,
    value: i64,
    (low, high): (i64, i64),
    why: &str,
) -> Result<u32, TaskError> {
    match u32::try_from(value) {
        Ok(of) if (low..=high).contains(&value) => Ok(of),
        _ => Err(TaskError::new(
            format!("{task}: {name} is {value}, but {why}"),
            format!("set {name} to a value from {low} to {high}"),
        )
        .about(name)),
    }
}
