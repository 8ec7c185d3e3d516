//! The suites of a recipe or a run, with their questions.
//!
//! A run asks what its lock says, or is refused: settings, questions, examples and tokenizer have the digests in the lock,
//! and every question has tokens that fit into a window.

use std::path::Path;

use data::text::index::TextIndex;
use data::text::locked::{Around, around, mismatch};
use data::text::tokenizer::{Kind, MOST_BYTES, MarkNames, Tokenizer};
use dsl::{Problem, ProblemKind};
use lab::experiment::{DataSource, Evaluation, Experiment};
use lab::field::SuiteTask;
use records::measure::{Measure, Model};
use records::run::digest_of;
use tasks::metric::MetricRule;

use crate::asked::{Asked, Opened, open};
use crate::encode::{self, Codec, Encoder, TokenError};
use crate::reply::{about_question, reply, token_problem};
use crate::score::{Reply, counted, part};
use crate::suite::{Kind as TaskKind, Task};

/// The tasks of a run's suites, with a tokenizer.
#[derive(Debug)]
struct Suites {
    /// In the order of the lock.
    asked: Vec<Asked>,
    /// As in training.
    tokens: TextTokens,
}

impl Measure for Suites {
    fn ask(
        &self,
        model: &mut dyn Model,
        task: usize,
        question: usize,
        longest: usize,
    ) -> Result<Vec<f64>, Problem> {
        let Some(Asked { task, requests, places, .. }) = self.asked.get(task) else {
            return Ok(Vec::new());
        };
        let (Some(request), Some(location)) = (requests.get(question), places.get(question)) else {
            return Ok(Vec::new());
        };
        let reply = match reply(model, &self.tokens, longest, task, request) {
            // A model that has diverged is a result, which the loss at the end names.
            Err(error) if error.kind == ProblemKind::Finding => Reply::Diverged,
            reply => reply.map_err(|error| about_question(error, location, &task.name))?,
        };
        Ok(task.metrics.iter().map(|metric| part(task, *metric, request, &reply)).collect())
    }
}

/// The tokens of text, as in training.
#[derive(Debug)]
struct TextTokens {
    tokenizer: Tokenizer,
    around: Around,
}

/// A task, as a lock names it.
fn locked(asked: &Asked) -> SuiteTask {
    let Asked { task, questions, examples, requests, places: _ } = asked;
    let Task { name, metrics, .. } = task;
    let counts = metrics.iter().filter_map(|metric| metric.rule()).any(MetricRule::counts);
    SuiteTask {
        name: name.clone(),
        metrics: metrics.iter().map(|metric| metric.word().to_owned()).collect(),
        questions: requests.len() as u64,
        settings: digest_of(task.digest()),
        asked: digest_of(*questions),
        examples: examples.map(digest_of),
        counted: counts.then(|| counted(requests)),
    }
}

/// Reads suites with all their questions. `data` is the folder of questions, if it is not each suite's own.
fn read(suites: &[String], data: Option<&str>) -> Result<Vec<Asked>, Problem> {
    let mut all: Vec<Asked> = Vec::new();
    for path in suites {
        let Opened { file, tasks, folder } = open(Path::new(path), data.map(Path::new))?;
        let Some(folder) = folder else {
            return Err(Problem::in_file(
                file,
                "it needs your own copies of the questions",
                "name their folder: suite_data = \"copies\" under [evaluation]; docs/evaluation.md lists the files",
            ));
        };
        for task in tasks {
            if all.iter().any(|known| known.task.name == task.name) {
                let message = format!("two suites have a task `{}`", task.name);
                return Err(Problem::in_file(file, message, "rename one of them"));
            }
            all.push(Asked::read(task, &folder, None)?);
        }
    }
    Ok(all)
}

/// The suites of a recipe.
#[derive(Debug)]
pub struct OfRecipe(Vec<Asked>);

impl OfRecipe {
    /// Reads suites with all their questions.
    pub fn read(suites: &[String], data: Option<&str>) -> Result<OfRecipe, Problem> {
        Ok(OfRecipe(read(suites, data)?))
    }

    /// Their tasks, as a lock names them.
    pub fn tasks(&self) -> Vec<SuiteTask> {
        self.0.iter().map(locked).collect()
    }

    /// The first task whose answers leave no room for a prompt in a window, and why.
    pub fn without_room(&self, seq_len: u64) -> Option<(&str, TokenError)> {
        let writes =
            self.0.iter().map(|asked| &asked.task).filter(|task| task.kind == TaskKind::Generate);
        writes
            .map(|task| (task.name.as_str(), encode::room(length(seq_len), task.max_tokens())))
            .find_map(|(name, room)| Some((name, room.err()?)))
    }
}

/// The longest input of a run's evaluations, in tokens.
fn length(seq_len: u64) -> usize {
    usize::try_from(seq_len).unwrap_or(usize::MAX)
}

/// The suites of an experiment, whose paths begin in the current folder; `None` if it has none. `documents` are those
/// that it trains on, if it trains on text.
pub fn for_experiment(
    experiment: &Experiment,
    documents: Option<&TextIndex>,
) -> Result<Option<Box<dyn Measure>>, Problem> {
    let Evaluation { suites, suite_data, tokenizer_file, tasks, .. } = &experiment.evaluation;
    if suites.is_empty() && tasks.is_empty() {
        return Ok(None);
    }
    let refused = |problem: Problem| {
        Problem::input(problem.located(), format!("{}; {FROM_HERE}", problem.help))
    };
    let asked = read(suites, suite_data.as_deref()).map_err(refused)?;
    let files: Vec<SuiteTask> = asked.iter().map(locked).collect();
    for pair in 0..files.len().max(tasks.len()) {
        if let Some(differs) = difference(tasks.get(pair), files.get(pair)) {
            return Err(Problem::input(
                format!("the suites are not those of the lock: {differs}"),
                "restore the files, or build the recipe again, which makes another lock",
            ));
        }
    }
    let tokens =
        TextTokens::for_source(&experiment.data.source, tokenizer_file.as_deref(), documents)?;
    check_tokens(&asked, &tokens, length(experiment.data.seq_len))?;
    Ok(Some(Box::new(Suites { asked, tokens })))
}

/// Refuses a question that has no tokens in inputs of at most `longest`. An evaluation would only find it after hours of
/// training, and training could not continue.
fn check_tokens(all: &[Asked], tokens: &TextTokens, longest: usize) -> Result<(), Problem> {
    for Asked { task, requests, places, .. } in all {
        for (request, location) in requests.iter().zip(places) {
            encode::request(tokens, task, request, longest)
                .map_err(|error| about_question(token_problem(error), location, &task.name))?;
        }
    }
    Ok(())
}

const FROM_HERE: &str = "a lock's suites are looked for from the folder that canonc is started in";

/// How a task of the lock and one of the files differ; `None` if they are equal.
fn difference(lock: Option<&SuiteTask>, file: Option<&SuiteTask>) -> Option<String> {
    let (lock, file) = match (lock, file) {
        (Some(lock), Some(file)) => (lock, file),
        (Some(lock), None) => return Some(format!("the lock has a task `{}` more", lock.name)),
        (None, Some(file)) => return Some(format!("they have a task `{}` more", file.name)),
        (None, None) => return None,
    };
    if lock.name != file.name {
        return Some(format!(
            "the lock has the task `{}` where they have `{}`",
            lock.name, file.name
        ));
    }
    let what = if lock.settings != file.settings || lock.metrics != file.metrics {
        "settings"
    } else if lock.asked != file.asked || lock.questions != file.questions {
        "questions"
    } else if lock.examples != file.examples {
        "examples"
    } else if lock.counted != file.counted {
        "words and bytes"
    } else {
        return None;
    };
    Some(format!("the {what} of task `{}` changed", lock.name))
}

impl TextTokens {
    fn for_source(
        source: &DataSource,
        file: Option<&str>,
        documents: Option<&TextIndex>,
    ) -> Result<TextTokens, Problem> {
        let locked = match source {
            DataSource::Task { .. } => {
                let tokenizer = Tokenizer::bytes();
                let around = around(Some(source), tokenizer.info());
                return Ok(TextTokens { tokenizer, around });
            }
            DataSource::Text { tokenizer, .. } => tokenizer,
        };
        let kind = Kind::from(locked);
        let tokenizer = match (kind, file) {
            (Kind::Bytes, _) => Tokenizer::bytes(),
            (Kind::File(_), None) => {
                return Err(Problem::input(
                    format!(
                        "suites ask in text, but the lock does not name the {kind} tokenizer's file"
                    ),
                    "name it: tokenizer_file = \"tokenizer.json\" under [evaluation], and build the recipe again",
                ));
            }
            (Kind::File(_), Some(path)) => from_file(kind, path, documents)?,
        };
        if let Some(differs) = mismatch(locked, tokenizer.info()) {
            let path = file.unwrap_or_default();
            return Err(Problem::input(
                format!("`{path}` is not the tokenizer of the lock: {differs}"),
                "name the file that the documents were prepared with: tokenizer_file under [evaluation]",
            ));
        }
        let around = around(Some(source), tokenizer.info());
        Ok(TextTokens { tokenizer, around })
    }
}

/// The tokenizer in a file, with the marks that the documents have.
fn from_file(kind: Kind, path: &str, documents: Option<&TextIndex>) -> Result<Tokenizer, Problem> {
    let bytes = disk::read(Path::new(path), MOST_BYTES).map_err(|error| {
        disk::cannot_read(
            &error,
            format!("the tokenizer's file `{path}` cannot be read: {error}"),
            format!("correct tokenizer_file under [evaluation]; {FROM_HERE}"),
        )
    })?;
    let with = |marks: &MarkNames| {
        let read = Tokenizer::read(kind, &bytes, path, marks);
        read.map_err(|error| Problem::input(error.message, error.help))
    };
    let plain = with(&MarkNames::default())?;
    let Some(wanted) = documents.map(|index| *index.tokenizer()) else { return Ok(plain) };
    if (plain.info().bos, plain.info().eos) == (wanted.bos, wanted.eos) {
        return Ok(plain);
    }
    // `canonc data prepare` was given other marks by name.
    let name = |id: Option<u32>| {
        let text = plain.decode(&[id?]).ok()?;
        String::from_utf8(text).ok().filter(|text| !text.is_empty())
    };
    with(&MarkNames { bos: name(wanted.bos), eos: name(wanted.eos) }).or(Ok(plain))
}

impl Encoder for TextTokens {
    fn encode(&self, text: &str) -> Result<Vec<i64>, String> {
        let mut ids: Vec<u32> = self.around.before.into_iter().collect();
        self.tokenizer.encode(text, &mut ids)?;
        Ok(ids.into_iter().map(i64::from).collect())
    }

    fn prefix(&self) -> Option<i64> {
        self.around.first.map(i64::from)
    }
}

impl Codec for TextTokens {
    fn continuation(&self, prompt: &[i64], tokens: &[i64]) -> Result<Vec<u8>, String> {
        let is_text = |id: &u32| ![self.around.before, self.around.after].contains(&Some(*id));
        let ids = |tokens: &[i64]| -> Vec<u32> {
            tokens.iter().filter_map(|id| u32::try_from(*id).ok()).filter(is_text).collect()
        };
        self.tokenizer.continuation(&ids(prompt), &ids(tokens))
    }

    fn stop(&self) -> Option<i64> {
        self.around.after.map(i64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITE: &str = "[[task]]\nname = \"next\"\nkind = \"continuation\"\nfile = \"q.jsonl\"\n\
                         prompt = \"{{ given }}\"\nanswer = \"next\"\n";

    #[test]
    fn a_changed_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
        write("s.toml", SUITE);
        write("q.jsonl", "{\"given\": \"a\", \"next\": \"b\"}\n");
        let suites = [path("s.toml").to_string_lossy().into_owned()];
        let tasks = |suites: &[String]| OfRecipe::read(suites, None).map(|read| read.tasks());
        let before = tasks(&suites).unwrap();
        let [task] = &before[..] else { panic!("{before:?}") };
        assert_eq!((task.questions, task.metrics.len()), (1, 2));
        assert_eq!(difference(Some(task), Some(task)), None);
        let changed = |what: &str| {
            let after = tasks(&suites).unwrap();
            let differs = difference(before.first(), after.first()).unwrap();
            assert!(differs.contains(what), "{differs}");
        };
        write("q.jsonl", "{\"given\": \"a\", \"next\": \"c\"}\n");
        changed("questions of task `next`");
        write("s.toml", &SUITE.replace("{{ given }}", "{{ given }} "));
        changed("settings of task `next`");
        write("s.toml", &SUITE.replace("\"next\"\nkind", "\"other\"\nkind"));
        changed("the lock has the task `next` where they have `other`");
        assert!(difference(before.first(), None).unwrap().contains("`next` more"));
        let twice = [suites[0].clone(), suites[0].clone()];
        assert!(tasks(&twice).unwrap_err().message.contains("two suites have a task"));
        let release = tasks(&["release".to_owned()]).unwrap_err();
        assert!(release.help.contains("suite_data"), "{release}");
    }
}
