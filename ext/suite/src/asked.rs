//! Suites by name, and tasks with their questions, ready to run. Two tasks with equal digests make the same requests.

use std::io;
use std::path::{Path, PathBuf};

use dsl::Problem;

use crate::questions::{Questions, shown};
use crate::request::{Request, requests};
use crate::suite::{Suite, Task};

/// The name of the built-in suite.
pub const RELEASE: &str = "release";
/// The name of the generated suite.
pub const NEEDLE: &str = "needle";

/// A suite that was found by its name.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The file, as shown in messages.
    pub file: String,
    /// Its tasks, at least one.
    pub tasks: Vec<Task>,
    /// The folder of questions; `None` if the suite is built in and none was given.
    pub folder: Option<PathBuf>,
}

/// Reads the suite in a file, or the built-in one. `data` is the folder of questions, if not the suite's own.
pub fn open(path: &Path, data: Option<&Path>) -> Result<Opened, Problem> {
    let built_in = path.as_os_str() == RELEASE && !path.exists();
    let text = match built_in {
        true => crate::RELEASE.to_owned(),
        false => disk::read_text(path, disk::SMALL).map_err(|error| unreadable(path, &error))?,
    };
    let Suite { file, tasks } = Suite::read(&shown(path), &text)?;
    let folder = match data {
        Some(folder) => Some(folder.to_owned()),
        None if built_in => None,
        None => Some(path.parent().unwrap_or(Path::new("")).to_owned()),
    };
    Ok(Opened { file, tasks, folder })
}

/// Error for a suite that does not exist or cannot be read.
fn unreadable(path: &Path, error: &io::Error) -> Problem {
    let file = shown(path);
    if error.kind() != io::ErrorKind::NotFound {
        let message = format!("the suite cannot be read: {error}");
        let help = "name a suite's file, or `release`";
        return disk::cannot_read(error, message, help).at(file);
    }
    let similar = dsl::suggest(&file, [RELEASE, NEEDLE]).map(str::to_owned);
    let help = match similar.or_else(|| disk::nearest(path).map(|path| shown(&path))) {
        Some(similar) => format!("did you mean `{similar}`?"),
        None => format!("name a suite's file, or `{RELEASE}`, `{NEEDLE}` or `task`"),
    };
    Problem::in_file(file, "there is no such suite or file", help)
}

/// A task with its questions.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The task.
    pub task: Task,
    /// Digest of the file of questions.
    pub questions: blake3::Hash,
    /// Digest of the file of examples, if the task has examples.
    pub examples: Option<blake3::Hash>,
    /// One for each question.
    pub requests: Vec<Request>,
    /// The file and line of each question, for messages.
    pub places: Vec<String>,
}

impl Asked {
    /// Reads the questions of a task, or the first ones, and makes its requests.
    pub fn read(task: Task, folder: &Path, limit: Option<usize>) -> Result<Asked, Problem> {
        let questions = Questions::read(&folder.join(&task.file))?;
        let shots_file = match &task.shots_file {
            Some(file) if task.shots > 0 => Some(Questions::read(&folder.join(file))?),
            Some(_) | None => None,
        };
        let examples = shots_file.as_ref().unwrap_or(&questions);
        let requests = requests(&task, &questions, examples, limit)?;
        let places = questions.all.iter().take(requests.len());
        Ok(Asked {
            questions: questions.digest,
            examples: (task.shots > 0).then_some(examples.digest),
            places: places.map(|question| questions.at(question)).collect(),
            requests,
            task,
        })
    }
}
