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
    pub place: String,
    /// Its tasks, at least one.
    pub tasks: Vec<Task>,
    /// The folder of questions; `None` if the suite is built in and none was given.
    pub folder: Option<PathBuf>,
}

/// Reads the suite in a file, or the built-in one. `data` is the folder of questions, if not the suite's own.
pub fn open(path: &Path, data: Option<&Path>) -> Result<Opened, Problem> {
    let built_in = path.as_os_str() == RELEASE && !path.exists();
    let place = shown(path);
    let own;
    let text = if built_in {
        crate::RELEASE
    } else {
        own = disk::read_text(path, disk::SMALL).map_err(|error| unreadable(path, &error))?;
        &own
    };
    let Suite { place, tasks } = Suite::read(&place, text)?;
    let folder = match data {
        Some(folder) => Some(folder.to_owned()),
        None if built_in => None,
        None => Some(path.parent().unwrap_or(Path::new("")).to_owned()),
    };
    Ok(Opened { place, tasks, folder })
}

/// Error for a suite that does not exist or cannot be read.
fn unreadable(path: &Path, error: &io::Error) -> Problem {
    let place = shown(path);
    if error.kind() != io::ErrorKind::NotFound {
        let message = format!("the suite cannot be read: {error}");
        return Problem::in_file(place, message, "name a suite's file, or `release`");
    }
    let near = dsl::suggest(&place, [RELEASE, NEEDLE]).map(str::to_owned);
    let help = match near.or_else(|| disk::nearest(path).map(|near| shown(&near))) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("name a suite's file, or `{RELEASE}`, `{NEEDLE}` or `task`"),
    };
    Problem::in_file(place, "there is no such suite or file", help)
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
        let own = match &task.shots_file {
            Some(file) if task.shots > 0 => Some(Questions::read(&folder.join(file))?),
            Some(_) | None => None,
        };
        let examples = own.as_ref().unwrap_or(&questions);
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
