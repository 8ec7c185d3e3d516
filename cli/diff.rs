//! `canonc diff`: the differences between two locks, and whether they are the treatment alone.
//!
//! In: two locks and, optionally, a treatment to try. Out: the verdict on standard output, as text or JSON;
//! exit 0 if controlled, 1 if confounded, 2 if the question makes no sense. Must stay true: only locks are
//! read, never a source; a treatment given on the command line is called exploratory.

use lab::verdict::{self, Refusal, Trainer};

use crate::args::DiffArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::{explain, locks, output};

pub fn diff(args: &DiffArgs) -> Outcome {
    let (Some(a), Some(b)) = (&args.a, &args.b) else {
        output::data(explain::SCRIPT)?;
        return Ok(Exit::Fine);
    };
    let (a_name, b_name) = (shown(a), shown(b));
    let (a, a_text) = locks::read(a)?;
    let (b, b_text) = locks::read(b)?;
    let sides = (a.side(&a_name, &a_text), b.side(&b_name, &b_text));
    let (left, right) = (sides.0.map_err(refused)?, sides.1.map_err(refused)?);
    let trainer = args.trainer.as_deref().and_then(Trainer::parse).unwrap_or_default();
    let (mut left, mut right) = (left.run_by(trainer), right.run_by(trainer));
    // Two runs of locks of one name.
    if left.label == right.label && a_name != b_name {
        (left.label, right.label) = (&a_name, &b_name);
    }
    let verdict = verdict::controlled(&left, &right, &args.treatment).map_err(refused)?;
    if args.json {
        output::json(&verdict::json(&verdict, true))?;
    } else {
        output::data(&verdict::text(&verdict, true))?;
    }
    if args.explain {
        output::data(&explain::commands(
            &a_name,
            &b_name,
            &args.treatment,
            args.trainer.as_deref(),
        ))?;
    }
    Ok(if verdict.is_controlled() { Exit::Fine } else { Exit::Finding })
}

fn refused(refusal: Refusal) -> Failure {
    let Refusal { code: _, message, help } = refusal;
    Failure::bad_input(message).help(help)
}
