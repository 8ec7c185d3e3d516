//! Quantities in rules: exact products and quotients of keys and numbers, such as
//! `optimizer.lr * optimizer.weight_decay * budget.steps`.
//!
//! If a key is missing or not a number, the quantity has no value.

use std::fmt;

use compiler::number::Ratio;
use dsl::Decimal;

use crate::subject::Subject;
use crate::value;

/// One factor.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Factor {
    Key(String),
    Number(Ratio),
}

/// A product divided by a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    over: Vec<Factor>,
    under: Vec<Factor>,
}

/// Most factors in one quantity.
const MAX_FACTORS: usize = 16;

impl Quantity {
    pub(crate) fn product(over: &[&str], under: &[&str]) -> Quantity {
        let keys = |paths: &[&str]| paths.iter().map(|p| Factor::Key((*p).to_owned())).collect();
        Quantity { over: keys(over), under: keys(under) }
    }

    /// Reads `a * b / c`. The factor after a `/` divides.
    pub fn parse(text: &str) -> Result<Quantity, String> {
        let mut quantity = Quantity { over: Vec::new(), under: Vec::new() };
        let mut rest = text;
        let mut divides = false;
        loop {
            let end = rest.find(['*', '/']).unwrap_or(rest.len());
            let (word, tail) = rest.split_at(end);
            let factor = factor(word.trim(), text)?;
            if quantity.over.len() + quantity.under.len() == MAX_FACTORS {
                return Err(format!("`{text}` has more than {MAX_FACTORS} factors"));
            }
            if divides && matches!(&factor, Factor::Number(n) if n.num == 0) {
                return Err(format!("`{text}` divides by 0"));
            }
            let list = if divides { &mut quantity.under } else { &mut quantity.over };
            list.push(factor);
            let Some(operator) = tail.chars().next() else { return Ok(quantity) };
            divides = operator == '/';
            rest = tail.get(1..).unwrap_or("");
        }
    }

    /// The keys in it, in order.
    pub fn keys(&self) -> Vec<&str> {
        let all = self.over.iter().chain(&self.under);
        all.filter_map(|factor| match factor {
            Factor::Key(path) => Some(path.as_str()),
            Factor::Number(_) => None,
        })
        .collect()
    }

    pub fn value_in(&self, subject: &Subject) -> Option<Ratio> {
        let number = |factor: &Factor| match factor {
            Factor::Key(path) => subject.number(path),
            Factor::Number(n) => Some(*n),
        };
        let mut value = Ratio { num: 1, den: 1 };
        for factor in &self.over {
            value = value.mul(number(factor)?)?;
        }
        for factor in &self.under {
            value = value.div(number(factor)?)?;
        }
        Some(value)
    }
}

fn factor(word: &str, text: &str) -> Result<Factor, String> {
    if word.is_empty() {
        return Err(format!("a factor is missing in `{text}`"));
    }
    if let Some(number) = Decimal::parse(word).ok().and_then(Ratio::from_decimal) {
        return Ok(Factor::Number(number));
    }
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '@');
    match word.chars().all(name) && word.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => Ok(Factor::Key(word.to_owned())),
        false => Err(format!("`{word}` in `{text}` is neither a key nor a number")),
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |factor: &Factor| match factor {
            Factor::Key(path) => path.clone(),
            Factor::Number(n) => value::shown(*n),
        };
        let over: Vec<String> = self.over.iter().map(text).collect();
        f.write_str(&over.join(" * "))?;
        for factor in &self.under {
            write!(f, " / {}", text(factor))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_back() {
        for text in ["optimizer.lr * budget.steps", "a.b / c.d", "2 * a / 3 / b"] {
            assert_eq!(Quantity::parse(text).unwrap().to_string(), text);
        }
        for (text, want) in [
            ("", "a factor is missing"),
            ("a *", "a factor is missing"),
            ("a + b", "neither a key nor a number"),
            ("a / 0", "divides by 0"),
        ] {
            assert!(Quantity::parse(text).unwrap_err().contains(want), "{text}");
        }
    }
}
