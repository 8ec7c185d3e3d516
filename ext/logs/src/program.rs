//! The programs whose logs are recognised: a row each, with the names of their series.

use std::collections::BTreeMap;

use dsl::Problem;

/// A quantity of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// The number of the step.
    Step,
    /// The training loss.
    Loss,
    /// The norm of the gradients.
    GradNorm,
    /// The learning rate.
    Lr,
    /// Tokens of all steps so far.
    Tokens,
    /// Sequences of one step.
    Sequences,
}

impl Quantity {
    /// All quantities.
    pub const ALL: [Quantity; 6] = [
        Quantity::Step,
        Quantity::Loss,
        Quantity::GradNorm,
        Quantity::Lr,
        Quantity::Tokens,
        Quantity::Sequences,
    ];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Quantity::Step => "step",
            Quantity::Loss => "loss",
            Quantity::GradNorm => "grad_norm",
            Quantity::Lr => "lr",
            Quantity::Tokens => "tokens",
            Quantity::Sequences => "sequences",
        }
    }
}

/// Names that a user gives to quantities: `loss=train/loss`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<Quantity, String>);

impl Names {
    /// Reads `QUANTITY=NAME` of each word.
    pub fn parse(words: &[String]) -> Result<Names, Problem> {
        let mut names = BTreeMap::new();
        for word in words {
            let all = Quantity::ALL.map(Quantity::word).join(", ");
            let (quantity, name) =
                word.split_once('=').filter(|(_, name)| !name.is_empty()).ok_or_else(|| {
                    Problem::input(
                        format!("`--metric {word}` is not of the form QUANTITY=NAME"),
                        format!(
                            "write for example `--metric loss=train/loss`; quantities are {all}"
                        ),
                    )
                })?;
            let known = Quantity::ALL.into_iter().find(|known| known.word() == quantity);
            let known = known.ok_or_else(|| {
                let help = match dsl::suggest(quantity, Quantity::ALL.map(Quantity::word)) {
                    Some(similar) => format!("did you mean `{similar}={name}`?"),
                    None => format!("quantities are {all}"),
                };
                Problem::input(format!("`{quantity}` in `--metric {word}` is no quantity"), help)
            })?;
            if let Some(before) = names.insert(known, name.to_owned()) {
                return Err(Problem::input(
                    format!("`--metric` names `{quantity}` twice: `{before}` and `{name}`"),
                    "keep one of the two",
                ));
            }
        }
        Ok(Names(names))
    }

    /// The name of a quantity, if the user gave one.
    pub(crate) fn get(&self, quantity: Quantity) -> Option<&str> {
        self.0.get(&quantity).map(String::as_str)
    }

    /// All names that the user gave.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Quantity, &str)> {
        self.0.iter().map(|(quantity, name)| (*quantity, name.as_str()))
    }
}

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One JSON object with `log_history`.
    State,
    /// JSON objects, one a line.
    Lines,
    /// A table with a line of names, as Weights & Biases exports a chart.
    Table,
    /// Event files of TensorBoard.
    Events,
}

impl Format {
    /// Whether a program that continues a run adds to such a file.
    pub(crate) fn is_appended(self) -> bool {
        match self {
            Format::Lines | Format::Events => true,
            Format::State | Format::Table => false,
        }
    }
}

/// A program whose names of series are known.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) title: &'static str,
    pub(crate) formats: &'static [Format],
    /// Names of loss, norm, learning rate and tokens; empty where it writes none.
    names: [&'static str; 4],
    /// What a value of the loss is.
    pub(crate) loss: &'static str,
}

const fn program(
    title: &'static str,
    formats: &'static [Format],
    names: [&'static str; 4],
    loss: &'static str,
) -> Program {
    Program { title, formats, names, loss }
}

const DRAWN: &[Format] = &[Format::Events, Format::Table];

/// The programs that are recognised, by format and names.
#[rustfmt::skip]
pub(crate) const PROGRAMS: [Program; 5] = [
    program("transformers", &[Format::State], ["loss", "grad_norm", "learning_rate", "num_input_tokens_seen"],
        "mean over the steps since the row before"),
    program("Lingua", &[Format::Lines], ["loss/out", "optim/grad_norm", "optim/lr", "optim/total_tokens"],
        "of a step's last micro-batch"),
    program("torchtitan", &[Format::Lines, Format::Events, Format::Table],
        ["loss_metrics/global_avg_loss", "grad_norm", "lr", "n_tokens_seen"],
        "of the step"),
    program("transformers", DRAWN, ["train/loss", "train/grad_norm", "train/learning_rate", "train/num_input_tokens_seen"],
        "mean over the steps since the point before"),
    program("canonc", &[Format::Events], ["training/training_loss", "training/gradient_norm", "training/learning_rate", ""],
        "of the step"),
];

/// What the loss of a program is that is not known.
pub(crate) const UNKNOWN_LOSS: &str = "as logged";

impl Program {
    /// Its name of a quantity.
    pub(crate) fn name(&self, quantity: Quantity) -> Option<&'static str> {
        let [loss, norm, lr, tokens] = self.names;
        let name = match quantity {
            Quantity::Loss => loss,
            Quantity::GradNorm => norm,
            Quantity::Lr => lr,
            Quantity::Tokens => tokens,
            Quantity::Step | Quantity::Sequences => "",
        };
        Some(name).filter(|name| !name.is_empty())
    }

    /// The program that has the most names of its own in a file of this format, one of them its loss or its learning rate.
    pub(crate) fn of(format: Format, has: impl Fn(&str) -> bool) -> Option<&'static Program> {
        let is_there = |program: &Program, quantity| program.name(quantity).is_some_and(&has);
        let writes = |program: &&Program| {
            program.formats.contains(&format)
                && [Quantity::Loss, Quantity::Lr].into_iter().any(|own| is_there(program, own))
        };
        let count = |program: &&Program| {
            Quantity::ALL.into_iter().filter(|quantity| is_there(program, *quantity)).count()
        };
        PROGRAMS.iter().filter(writes).max_by_key(count)
    }
}

/// Names of the step, in the order in which they count.
pub(crate) const STEPS: [&str; 8] = [
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "step",
    "Step",
    "_step",
    "iteration",
    "iter",
];
