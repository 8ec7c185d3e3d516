//! Chooses the examples in front of a question, as in lm-evaluation-harness (`lm_eval/api/samplers.py`): one generator
//! with seed 1234 serves all questions of a task; one example more is drawn if they come from the questions' own file;
//! an example that equals the question is left out.

use std::collections::BTreeMap;

use dsl::Problem;
use jinja::Value;
use tasks::cpython::Random;

use crate::questions::{Questions, SuiteQuestion};
use crate::suite::{ShotOrder, Task};

/// The harness's default seed for examples.
const SEED: u64 = 1234;

/// The examples of a task.
#[derive(Debug)]
pub struct Shots<'a> {
    task: &'a Task,
    examples: &'a Questions,
    /// Whether the examples are the questions' own file.
    same_file: bool,
    /// For each value of the task's `shots_by`: its examples and their generator. Tasks without it have one group.
    groups: BTreeMap<String, (Vec<usize>, Random)>,
}

impl<'a> Shots<'a> {
    /// `examples` is the task's file of examples, or its questions.
    pub fn new(task: &'a Task, examples: &'a Questions) -> Result<Shots<'a>, Problem> {
        let mut groups: BTreeMap<String, (Vec<usize>, Random)> = BTreeMap::new();
        for (index, example) in examples.all.iter().enumerate() {
            let group = group(task, examples, example)?;
            groups.entry(group).or_insert_with(|| (Vec::new(), Random::new(SEED))).0.push(index);
        }
        Ok(Shots { task, examples, same_file: task.shots_file.is_none(), groups })
    }

    /// The examples of the next question.
    pub fn next(
        &mut self,
        questions: &Questions,
        question: &SuiteQuestion,
    ) -> Result<Vec<&'a SuiteQuestion>, Problem> {
        let wanted = self.task.shots;
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let key = group(self.task, questions, question)?;
        let too_few = |available: usize| {
            let group = match &self.task.shots_by {
                Some(field) => format!(" with {field} = {key}"),
                None => String::new(),
            };
            let besides = if self.same_file { " besides the question" } else { "" };
            Problem::in_file(
                questions.at(question),
                format!(
                    "{wanted} examples are wanted, but `{}` has {available}{group}{besides}",
                    self.examples.file
                ),
                "set fewer shots, or add examples",
            )
        };
        let Some((indices, random)) = self.groups.get_mut(&key) else { return Err(too_few(0)) };
        let drawn = (wanted + usize::from(self.same_file)).min(indices.len());
        let mut picks = Vec::new();
        match self.task.shots_order.unwrap_or_default() {
            ShotOrder::First => picks.extend(0..drawn as u32),
            ShotOrder::Random => random.sample(indices.len() as u32, drawn as u32, &mut picks),
        }
        let chosen: Vec<&SuiteQuestion> = picks
            .iter()
            .filter_map(|pick| self.examples.all.get(*indices.get(*pick as usize)?))
            .filter(|example| !example.fields.equals(&question.fields))
            .take(wanted)
            .collect();
        match chosen.len() == wanted {
            true => Ok(chosen),
            false => Err(too_few(chosen.len())),
        }
    }
}

/// The value of the task's `shots_by`, as text.
fn group(task: &Task, file: &Questions, question: &SuiteQuestion) -> Result<String, Problem> {
    let Some(field) = &task.shots_by else { return Ok(String::new()) };
    match question.fields.get(&Value::from(field.as_str())) {
        Some(value) => Ok(value.repr().unwrap_or_default()),
        None => Err(Problem::in_file(
            file.at(question),
            format!("it has no `{field}`, which chooses the examples of task `{}`", task.name),
            "add the field, or remove shots_by",
        )),
    }
}
