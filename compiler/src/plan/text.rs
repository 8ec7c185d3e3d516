//! A plan as text, for `canonc graph --plan` and for the digest that a run records.
//!
//! One line per input, step and output. Everything that changes the execution, or when memory is freed, changes the text;
//! the source line of a step does not.

use std::fmt::{self, Write as _};

use super::{Extent, Input, Output, Phase, Plan, StatePart, Step, TrainPlan, ValId};
use crate::digest::Digest;

const TAG: &str = "canonc.plan.v1";

impl Plan {
    /// One line for each input, step and output. Everything that changes the execution is in it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (input, id) in &self.inputs {
            let _ = write!(text, "{} = given {input}", self.typed(*id));
            // Identify a state by its number: its path is in no id, and this text is hashed.
            let path = match (input, self.value(*id)) {
                (
                    Input::Param(_)
                    | Input::Gradient(_)
                    | Input::FirstMoment(_)
                    | Input::SecondMoment(_),
                    Some(value),
                ) => format!(" {}", value.name),
                _ => String::new(),
            };
            let _ = writeln!(text, "{path}");
        }
        let mut last = None;
        for step in &self.steps {
            let section = (step.phase, step.source.as_ref().map(|s| s.layer));
            if last != Some(section) {
                last = Some(section);
                let _ = writeln!(text, "{}", heading(step));
            }
            let _ = writeln!(text, "{}", self.line(step));
        }
        for (output, id) in &self.outputs {
            let _ = writeln!(text, "give {output} = %{}", id.0);
        }
        text
    }

    /// Digest of the text.
    pub fn digest(&self) -> Digest {
        Digest::of(TAG, &self.text())
    }

    fn line(&self, step: &Step) -> String {
        let outputs: Vec<String> = step.outputs.iter().map(|id| self.typed(*id)).collect();
        let inputs: Vec<String> = step.inputs.iter().map(|id| format!("%{}", id.0)).collect();
        let attrs = step.kernel.attrs();
        let mut line = format!("{} = {}", outputs.join(", "), step.kernel.name());
        if !attrs.is_empty() {
            let _ = write!(line, " {{{}}}", attrs.join(", "));
        }
        let _ = write!(line, " ({})", inputs.join(", "));
        if !step.drop_after.is_empty() {
            let dropped: Vec<String> =
                step.drop_after.iter().map(|id| format!("%{}", id.0)).collect();
            let _ = write!(line, " drop {}", dropped.join(" "));
        }
        line
    }

    fn typed(&self, id: ValId) -> String {
        let Some(value) = self.value(id) else { return format!("%{}", id.0) };
        let dims: Vec<String> = value.dims.iter().map(Extent::to_string).collect();
        format!("%{} {}[{}]", id.0, value.dtype, dims.join(", "))
    }
}

impl TrainPlan {
    /// The texts of the three plans, each under its name.
    pub fn text(&self) -> String {
        let TrainPlan { micro, combine, update } = self;
        format!("micro\n{}combine\n{}update\n{}", micro.text(), combine.text(), update.text())
    }

    /// Digest of the text.
    pub fn digest(&self) -> Digest {
        Digest::of(TAG, &self.text())
    }
}

fn heading(step: &Step) -> String {
    match step.source.as_ref().map(|s| s.layer) {
        Some(Some(layer)) => format!("# {}, layer {layer}", step.phase),
        Some(None) => format!("# {}, embedding and head", step.phase),
        None => format!("# {}", step.phase),
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Forward => "forward",
            Phase::Loss => "loss",
            Phase::Recompute => "recompute",
            Phase::Backward => "backward",
            Phase::Combine => "combine",
            Phase::Update => "update",
        })
    }
}

impl fmt::Display for StatePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StatePart::Inputs => "inputs",
            StatePart::Tokens => "tokens",
            StatePart::Keys => "keys",
            StatePart::Values => "values",
            StatePart::Matrix => "matrix",
        })
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Tokens => write!(f, "tokens"),
            Input::Targets => write!(f, "targets"),
            Input::Position => write!(f, "position"),
            Input::GradScale => write!(f, "grad_scale"),
            Input::DropoutKey => write!(f, "dropout_key"),
            Input::Window => write!(f, "window"),
            Input::Param(id) => write!(f, "param {}", id.0),
            Input::Rounded(id) => write!(f, "rounded {}", id.0),
            Input::State(id, part) => write!(f, "state {} {part}", id.0),
            Input::Left(output) => write!(f, "left {output}"),
            Input::Right(output) => write!(f, "right {output}"),
            Input::Gradient(id) => write!(f, "gradient {}", id.0),
            Input::FirstMoment(id) => write!(f, "first_moment {}", id.0),
            Input::SecondMoment(id) => write!(f, "second_moment {}", id.0),
            Input::LearningRate => write!(f, "learning_rate"),
            Input::StepNumber => write!(f, "step_number"),
        }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Output::Logits => write!(f, "logits"),
            Output::Nll => write!(f, "nll"),
            Output::Loss => write!(f, "loss"),
            Output::Counted => write!(f, "counted"),
            Output::Term(n) => write!(f, "term {n}"),
            Output::Argmax => write!(f, "argmax"),
            Output::State(id, part) => write!(f, "state {} {part}", id.0),
            Output::Gradient(id) => write!(f, "gradient {}", id.0),
            Output::GradNorm => write!(f, "grad_norm"),
            Output::Param(id) => write!(f, "param {}", id.0),
            Output::FirstMoment(id) => write!(f, "first_moment {}", id.0),
            Output::SecondMoment(id) => write!(f, "second_moment {}", id.0),
        }
    }
}
