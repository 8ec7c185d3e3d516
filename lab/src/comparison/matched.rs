//! Matched controls: a quantity in which arms of different families must agree, with a tolerance.
//!
//! Only integers and exact decimals. Distances are relative to the base, and the suggestion changes the arm: a suggested value
//! was elaborated and does match.

use dsl::Decimal;
use toml::de::DeValue;

use crate::error::FieldProblem;
use crate::experiment::{Experiment, LockedArch};
use crate::field::{self, Bounds, FieldValue, Kind, shown};
use crate::verdict::{Change, Declared, percent};
use compiler::analyse::analyse;
use compiler::program::{Program, Std};

/// The quantity to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Parameters of the whole model.
    Parameters,
    /// Parameters without the token table and the output projection.
    NonEmbedding,
    /// FLOPs of the forward and backward pass, per token.
    Flops,
    /// FLOPs of the whole training.
    TrainFlops,
}

/// A declared match: an arm may differ from the base by at most this share of the base's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// The quantity to match.
    pub on: Quantity,
    /// Largest difference, as a share of the base's value.
    pub within: Decimal,
}

/// Which arms are matched, and what was adjusted in them to that end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchScope {
    /// The arms, by name; all treated arms if empty.
    pub arms: Vec<String>,
    /// Entries of a treatment that compensate for it: sizes that an arm changed to have as much of the quantity as the
    /// base.
    pub compensate: Vec<String>,
}

impl MatchScope {
    /// Whether an arm is matched.
    pub fn covers(&self, arm: &str) -> bool {
        self.arms.is_empty() || self.arms.iter().any(|name| name == arm)
    }
}

/// The quantity in the base and in one arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matched {
    /// In the base.
    pub base: i128,
    /// In the arm.
    pub arm: i128,
}

impl Quantity {
    /// The words for quantities in comparison files.
    pub const WORDS: [&'static str; 4] = ["parameters", "non_embedding", "flops", "train_flops"];

    const ALL: [Quantity; 4] =
        [Quantity::Parameters, Quantity::NonEmbedding, Quantity::Flops, Quantity::TrainFlops];

    /// The word in comparison files.
    pub fn word(self) -> &'static str {
        match self {
            Quantity::Parameters => "parameters",
            Quantity::NonEmbedding => "non_embedding",
            Quantity::Flops => "flops",
            Quantity::TrainFlops => "train_flops",
        }
    }

    pub(crate) fn read(value: &DeValue<'_>) -> Result<Quantity, String> {
        let word = field::string(value);
        let quantity = Quantity::ALL.into_iter().find(|known| Some(known.word()) == word);
        quantity
            .ok_or_else(|| format!("{} is not {}", shown(value), field::one_of(&Quantity::WORDS)))
    }

    /// The path of the derived field.
    pub fn path(self) -> &'static str {
        match self {
            Quantity::Parameters => "arch.parameters",
            Quantity::NonEmbedding => "arch.non_embedding",
            Quantity::Flops => "arch.train_flops_per_token",
            Quantity::TrainFlops => "budget.flops",
        }
    }

    /// The name in messages.
    pub fn called(self) -> &'static str {
        match self {
            Quantity::Parameters => "parameters",
            Quantity::NonEmbedding => "parameters without embeddings",
            Quantity::Flops => "FLOPs a token, forward and backward",
            Quantity::TrainFlops => "FLOPs of the whole training",
        }
    }

    fn value_in(self, experiment: &Experiment) -> i128 {
        match experiment.value(self.path()) {
            Some(FieldValue::Int(n)) => i128::from(*n),
            Some(FieldValue::Big(n)) => i128::try_from(*n).unwrap_or(i128::MAX),
            Some(
                FieldValue::Real(_)
                | FieldValue::Bool(_)
                | FieldValue::Text(_)
                | FieldValue::List(_),
            )
            | None => 0,
        }
    }
}

impl Match {
    /// The default tolerance: one percent.
    pub(crate) fn usual(on: Quantity) -> Match {
        let hundredth = Decimal::new(1, -2).unwrap_or(Decimal::ZERO);
        Match { on, within: hundredth }
    }

    /// Reads a tolerance: a share with at most six decimals.
    pub(crate) fn share(value: &DeValue<'_>) -> Result<Decimal, String> {
        let wrong =
            || format!("{} is not a number from 0 to 1 with at most six decimals", shown(value));
        match Kind::Real(Bounds::Share).read(value) {
            Ok(FieldValue::Real(share)) if millionths(share).is_some() => Ok(share),
            Ok(_) | Err(_) => Err(wrong()),
        }
    }

    fn holds(self, Matched { base, arm }: Matched) -> bool {
        let Some(share) = millionths(self.within) else { return false };
        let apart = arm.checked_sub(base).and_then(|d| d.abs().checked_mul(1_000_000));
        // If the product overflows, the arms do not count as matched.
        apart.zip(base.checked_mul(share)).is_some_and(|(apart, most)| apart <= most)
    }

    /// Both values, if they match; `point` names the point of the grid.
    pub(super) fn check(
        self,
        [(base_name, base), (name, arm)]: [(&str, &Experiment); 2],
        point: Option<&str>,
    ) -> Result<Matched, FieldProblem> {
        let values = Matched { base: self.on.value_in(base), arm: self.on.value_in(arm) };
        if self.holds(values) {
            return Ok(values);
        }
        let Matched { base: of_base, arm: of_arm } = values;
        let point = point.map_or_else(String::new, |point| format!(" in {point}"));
        let message = format!(
            "arm `{name}` has {} {}{point}, the base `{base_name}` has {} ({}), but [match] allows {} of the base's",
            digits(of_arm),
            self.on.called(),
            digits(of_base),
            values.apart(),
            self.within
        );
        let missing = of_base.saturating_sub(of_arm);
        let short = match missing > 0 {
            true => format!("`{name}` lacks {}", digits(missing)),
            false => format!("`{name}` has {} too many", digits(missing.saturating_neg())),
        };
        let help = match self.on {
            Quantity::TrainFlops => self.steps(of_base, arm),
            Quantity::Parameters | Quantity::NonEmbedding | Quantity::Flops => {
                self.hidden(of_base, arm)
            }
        };
        let help = match help {
            Some(help) => format!("{short}: {help}; or raise within, or leave [match] out"),
            None => format!(
                "{short}: change its arch by that much and declare the change as compensate under [match]; or raise \
                 within, or leave [match] out"
            ),
        };
        Err(FieldProblem::new("match", "not-matched", message, help))
    }

    /// Suggests the number of steps that costs as much as the base.
    fn steps(self, base: i128, arm: &Experiment) -> Option<String> {
        let per_step = arm
            .analysis
            .train_flops_per_token
            .checked_mul(i128::from(arm.batch.tokens_per_step))
            .filter(|flops| *flops > 0)?;
        let steps = (base.checked_add(per_step / 2)? / per_step).max(1);
        let spent = Matched { base, arm: per_step.checked_mul(steps)? };
        let how = format!("write steps = {steps} under [budget] of its recipe");
        if !self.holds(spent) {
            return Some(format!("{how}, the nearest possible value ({})", spent.apart()));
        }
        Some(format!(
            "{how} ({} FLOPs, {}) and compensate = \"budget.steps\" under [match]",
            digits(spent.arm),
            spent.apart()
        ))
    }

    /// Suggests an MLP width that matches. It was checked by elaborating the arch.
    fn hidden(self, base: i128, arm: &Experiment) -> Option<String> {
        let now = hidden_of(&arm.arch)?;
        let value = |hidden: i128| self.with_hidden(arm, hidden);
        let current = self.on.value_in(arm);
        // The cost of an MLP is linear in its width.
        let slope = value(now.checked_mul(2)?)?.checked_sub(current).filter(|slope| *slope > 0)?;
        let wanted = base.checked_sub(current)?.checked_mul(now)?;
        for grain in [64, 32, 16, 8, 4, 2, 1] {
            let nearest = |over: i128, under: i128| {
                over.div_euclid(under) + i128::from(2 * over.rem_euclid(under) >= under)
            };
            let exact = now.checked_mul(slope)?.checked_add(wanted)?;
            let hidden = nearest(exact, slope.checked_mul(grain)?).checked_mul(grain)?;
            let guessed = current.checked_add(slope.checked_mul(hidden - now)? / now)?;
            let finest = grain == 1;
            if hidden < 1 || !(finest || self.holds(Matched { base, arm: guessed })) {
                continue;
            }
            let values = Matched { base, arm: value(hidden)? };
            let how = format!("mlp.hidden {hidden} instead of {now} in its arch");
            let gives = format!("gives {} ({})", digits(values.arm), values.apart());
            if self.holds(values) {
                return Some(format!(
                    "{how} {gives}; write compensate = \"mlp.hidden\" under [match]"
                ));
            }
            if finest {
                return Some(format!("{how} {gives}, the nearest possible value"));
            }
        }
        None
    }

    /// Checks that an entry compensates: that it is a size, and that the arm would be further from the base without it.
    pub(super) fn check_compensates(
        self,
        base: &Experiment,
        (name, arm): (&str, &Experiment),
        declared: &Declared,
    ) -> Result<(), FieldProblem> {
        let entry = declared.entry.as_str();
        if self.within.compare(Decimal::new(5, -2).unwrap_or(Decimal::ZERO)).is_gt() {
            let message = format!(
                "[match] allows {} of the base's {}, which is not equal enough to say that `{entry}` compensates",
                self.within,
                self.on.called()
            );
            let help = "write within = 0.05 or less, or leave compensate out";
            return Err(FieldProblem::new("match", "loose-compensation", message, help));
        }
        let unadjusted = if entry.starts_with("budget.") && self.on == Quantity::TrainFlops {
            let per_token = arm.analysis.train_flops_per_token;
            per_token.checked_mul(i128::from(base.budget.tokens))
        } else if is_size(base, declared) {
            let of_base = edits(declared, |change| change.a.as_ref());
            of_base.and_then(|edits| self.with_edits(arm, &edits))
        } else {
            None
        };
        let help =
            "name a size such as mlp.hidden, or move it to the treatment, which makes a bundle";
        let Some(unadjusted) = unadjusted else {
            let message = format!(
                "`{entry}` alone does not change the {} of the base, is not a whole number, or grows in some layers and \
                 shrinks in others, so it is no size and \
                 cannot compensate",
                match self.on {
                    Quantity::TrainFlops => "parameters or steps",
                    Quantity::Parameters | Quantity::NonEmbedding | Quantity::Flops => "parameters",
                }
            );
            return Err(FieldProblem::new("match", "no-compensation", message, help));
        };
        let (of_base, of_arm) = (self.on.value_in(base), self.on.value_in(arm));
        let apart = |value: i128| value.abs_diff(of_base);
        if apart(of_arm) < apart(unadjusted) {
            return Ok(());
        }
        let message = format!(
            "`{entry}` does not compensate in `{name}`: with it the arm has {} {}, without it {}, and the base {}",
            digits(of_arm),
            self.on.called(),
            digits(unadjusted),
            digits(of_base)
        );
        Err(FieldProblem::new("match", "no-compensation", message, help))
    }

    /// The quantity of the arm's arch with another MLP width.
    fn with_hidden(self, arm: &Experiment, hidden: i128) -> Option<i128> {
        self.with_edits(arm, &format!("mlp.hidden {hidden}"))
    }

    /// The quantity of an arch after edits.
    fn with_edits(self, arm: &Experiment, edits: &str) -> Option<i128> {
        const FILE: &str = "matched";
        const NAME: &str = "matched_on_size";
        let LockedArch { name, text, compiled: _ } = &*arm.arch;
        let text = format!("{text}\narch {NAME} = {name} with {{ {edits} }}\n");
        let program = Program::new([(FILE.to_owned(), text)], Std::None);
        let graph = program.compile(FILE, NAME).0?.graph;
        let analysis = analyse(&graph, i64::try_from(arm.data.seq_len).ok()?);
        match self.on {
            Quantity::Parameters => Some(i128::from(analysis.parameters)),
            Quantity::NonEmbedding => Some(i128::from(analysis.non_embedding)),
            Quantity::Flops => Some(analysis.train_flops_per_token),
            Quantity::TrainFlops => {
                analysis.train_flops_per_token.checked_mul(i128::from(arm.budget.tokens))
            }
        }
    }
}

/// Whether an entry changes whole numbers, and with them the number of parameters of the base.
fn is_size(base: &Experiment, declared: &Declared) -> bool {
    let number = |value: &Option<String>| value.as_ref()?.parse::<u64>().ok();
    let sizes = declared.changes.iter().map(|change| number(&change.a).zip(number(&change.b)));
    let Some(sizes) = sizes.collect::<Option<Vec<(u64, u64)>>>() else { return false };
    // Layers that lose what others gain are a treatment of their own.
    let one_way = sizes.iter().all(|(a, b)| b > a) || sizes.iter().all(|(a, b)| b <= a);
    let parameters = Match { on: Quantity::Parameters, within: Decimal::ZERO };
    let before = parameters.with_edits(base, "");
    let of_arm = edits(declared, |change| change.b.as_ref());
    let after = of_arm.and_then(|edits| parameters.with_edits(base, &edits));
    one_way && before.is_some() && after.is_some() && before != after
}

/// The changes of an entry as edits of an arch, with the values of one arm: `layers[0..2].mlp.hidden 178`.
fn edits<'c>(
    declared: &'c Declared,
    value: impl Fn(&'c Change) -> Option<&'c String>,
) -> Option<String> {
    let mut edits = Vec::new();
    for change in &declared.changes {
        let path = change.path.strip_prefix("arch.")?;
        let value = value(change)?;
        let Some(rest) = path.strip_prefix("layers.") else {
            edits.push(format!("{path} {value}"));
            continue;
        };
        let field = rest.trim_start_matches(|c: char| c.is_ascii_digit() || "./".contains(c));
        let layers = rest.strip_suffix(field)?.trim_end_matches('.');
        match layers.split_once('/') {
            None => edits.push(format!("layers[{layers}].{field} {value}")),
            Some((range, step)) => {
                let (first, end) = range.split_once("..")?;
                let (first, end): (usize, usize) = (first.parse().ok()?, end.parse().ok()?);
                let every = (first..end).step_by(step.parse::<usize>().ok()?.max(1));
                edits.extend(every.map(|layer| format!("layers[{layer}].{field} {value}")));
            }
        }
    }
    Some(edits.join("   "))
}

impl Matched {
    /// The text in verdicts.
    pub fn text(self, Match { on, within }: Match) -> String {
        format!(
            "matched on {} within {within}: {} and {} {} ({})",
            on.word(),
            digits(self.base),
            digits(self.arm),
            on.called(),
            self.apart()
        )
    }

    /// How much more than the base an arm has.
    pub fn apart(self) -> String {
        if self.base == self.arm {
            return "equal".to_owned();
        }
        let [base, arm] = [self.base, self.arm].map(FieldValue::count);
        let percent = percent(&base, &arm);
        if percent.is_empty() { "no percentage, since the base has 0".to_owned() } else { percent }
    }
}

/// The MLP width, if all layers have the same one.
fn hidden_of(arch: &LockedArch) -> Option<i128> {
    let fields = arch.compiled.fields.iter();
    let mut widths: Vec<&str> = fields
        .filter(|field| field.path.starts_with("layers.") && field.path.ends_with(".mlp.hidden"))
        .map(|field| field.value.as_str())
        .collect();
    widths.dedup();
    match widths.as_slice() {
        [one] => one.parse().ok().filter(|width| *width > 0),
        _ => None,
    }
}

/// A share in millionths, if it is a whole number of them.
fn millionths(share: Decimal) -> Option<i128> {
    share.mul(Decimal::from(1_000_000)).ok()?.to_int().map(i128::from)
}

/// Digits in groups of three.
fn digits(number: i128) -> String {
    let plain = number.unsigned_abs().to_string();
    let mut out = String::new();
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if number < 0 { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(share: &str) -> Match {
        Match { on: Quantity::Parameters, within: Decimal::parse(share).unwrap() }
    }

    #[test]
    fn a_tolerance_is_a_share_of_the_base_and_exact() {
        for (share, base, arm, holds) in [
            ("0.01", 1000, 1010, true),
            ("0.01", 1000, 1011, false),
            ("0.01", 1000, 990, true),
            ("0.01", 1000, 989, false),
            ("0", 7, 7, true),
            ("0", 7, 8, false),
            ("0.000001", 1_000_000, 1_000_001, true),
            ("0.000001", 999_999, 1_000_000, false),
            ("1", 0, 0, true),
            ("1", 0, 1, false),
            ("1", i128::MAX, i128::MAX, false),
        ] {
            assert_eq!(within(share).holds(Matched { base, arm }), holds, "{share} {base} {arm}");
        }
    }

    #[test]
    fn numbers_are_read_in_threes() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (-1_234_567, "-1,234,567"),
            (100_000, "100,000"),
        ] {
            assert_eq!(digits(number), text);
        }
    }
}
