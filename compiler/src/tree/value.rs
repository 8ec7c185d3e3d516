//! Configuration values, each with one canonical text.

use std::rc::Rc;

use dsl::{Decimal, Span};

use crate::graph::ParamId;
use crate::number::{InitRule, Ratio, Root};

use super::Applied;

/// A configuration value, known at elaboration.
#[derive(Clone, Debug)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// An exact decimal.
    Decimal(Decimal),
    /// `true` or `false`.
    Bool(bool),
    /// A word from a closed set: `interleaved`, `half`, `none`.
    Word(&'static str),
    /// A quotient that is neither an integer nor a finite decimal, with the span of its division:
    /// only `floor`, `ceil_to`, `sqrt` and `rsqrt` may use it.
    Ratio(Ratio, Span),
    /// An irrational root, for initial distributions only.
    Root(Root),
    /// A definition with configuration, not yet called, and the field of the arch that holds it.
    Def(Rc<Applied>, Option<Rc<str>>),
    /// An instance that owns a parameter, for sharing its weight.
    Instance(ParamId),
    /// The rule of an initial distribution.
    Init(InitRule),
    /// Tensors that the body computes with. They are not configuration.
    Tensors(Vec<crate::graph::Out>),
}

impl Value {
    /// A description for messages.
    pub fn describe(&self) -> String {
        match self {
            Value::Int(n) => format!("the integer {n}"),
            Value::Decimal(d) => format!("the number {d}"),
            Value::Bool(b) => format!("`{b}`"),
            Value::Word(w) => format!("the word `{w}`"),
            Value::Ratio(r, _) => format!("the fraction {r}"),
            Value::Root(r) => format!("the root {r}"),
            Value::Def(applied, _) => format!("the definition `{}`", applied.name()),
            Value::Instance(_) => "an instance".to_owned(),
            Value::Init(rule) => format!("the init rule `{rule}`"),
            Value::Tensors(outs) if outs.len() == 1 => "a tensor".to_owned(),
            Value::Tensors(outs) => format!("{} tensors", outs.len()),
        }
    }

    /// The simplest equal value: an integer, else a finite decimal, else a ratio.
    pub fn of_ratio(ratio: Ratio, at: Span) -> Value {
        if ratio.den == 1
            && let Ok(n) = i64::try_from(ratio.num)
        {
            return Value::Int(n);
        }
        match ratio.to_decimal() {
            Some(d) => Value::Decimal(d),
            None => Value::Ratio(ratio, at),
        }
    }

    /// The canonical text of a field; definitions show their name only.
    pub fn text(&self) -> String {
        match self {
            Value::Int(n) => n.to_string(),
            Value::Decimal(d) => d.to_string(),
            Value::Bool(b) => b.to_string(),
            Value::Word(w) => (*w).to_owned(),
            Value::Ratio(r, _) => r.to_string(),
            Value::Root(r) => r.to_string(),
            Value::Def(applied, _) => applied.name().to_owned(),
            Value::Instance(id) => format!("instance {}", id.0),
            Value::Init(rule) => rule.to_string(),
            Value::Tensors(_) => "tensor".to_owned(),
        }
    }

    /// The number as a fraction; None for roots and anything but numbers.
    pub(crate) fn as_ratio(&self) -> Option<Ratio> {
        match self {
            Value::Int(n) => Some(Ratio { num: i128::from(*n), den: 1 }),
            Value::Decimal(d) => Ratio::from_decimal(*d),
            Value::Ratio(r, _) => Some(*r),
            Value::Bool(_)
            | Value::Word(_)
            | Value::Root(_)
            | Value::Def(..)
            | Value::Instance(_)
            | Value::Init(_)
            | Value::Tensors(_) => None,
        }
    }

    /// The number as a finite decimal; None for anything else.
    pub(crate) fn as_decimal(&self) -> Option<Decimal> {
        match self {
            Value::Int(n) => Some(Decimal::from(*n)),
            Value::Decimal(d) => Some(*d),
            Value::Bool(_)
            | Value::Word(_)
            | Value::Ratio(..)
            | Value::Root(_)
            | Value::Def(..)
            | Value::Instance(_)
            | Value::Init(_)
            | Value::Tensors(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_become_the_simplest_value() {
        let at = Span::new(dsl::FileId(0), 0, 0);
        assert_eq!(Value::of_ratio(Ratio::new(6, 3).unwrap(), at).text(), "2");
        assert_eq!(Value::of_ratio(Ratio::new(1, 16).unwrap(), at).text(), "0.0625");
        assert_eq!(Value::of_ratio(Ratio::new(-2, 6).unwrap(), at).text(), "-1/3");
    }
}
