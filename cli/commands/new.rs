//! `canonc new`: a first architecture, with and without Canon layers, and the experiment that compares them.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Args, ValueEnum};

use crate::fail::{Exit, Failure, Outcome, shown};
use crate::{files, out, output};

/// Write a runnable architecture, recipe and comparison into an empty folder
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc new          into this folder, if it is empty
  canonc new demo     into ./demo, which is created if missing
  canonc new mine --task text    an experiment on your own text
  canonc new mine --matched      also Canon layers at equal size, with the arms that separate both effects")]
pub struct NewArgs {
    /// The folder to create; it must be empty or missing
    #[arg(default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// What the experiment learns
    #[arg(long, value_enum, value_name = "TASK", default_value_t)]
    pub task: NewTask,
    /// Also write a comparison at equal size: plain, added, narrow, and matched
    #[arg(long)]
    pub matched: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum NewTask {
    /// Depo, a synthetic task: follow a chain of names; samples are generated during training
    #[default]
    Depo,
    /// Text: a file of fables, to replace by your own
    Text,
}

/// All files of a template by path, and the commands that show them, in order.
struct Template {
    files: &'static [(&'static str, &'static str)],
    next: &'static [&'static str],
    /// Further files and commands: the arms of a comparison at equal size.
    matched: (&'static [(&'static str, &'static str)], &'static [&'static str]),
}

macro_rules! files {
    ($folder:literal: $($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("new/", $folder, "/", $path)))),+]
    };
}

/// A synthetic task: chains of names to follow.
const DEPO: Template = Template {
    files: files!("depo":
        "arch/first.canon",
        "arch/firstcanon.canon",
        "recipes/depo_first.toml",
        "recipes/depo_firstcanon.toml",
        "recipes/depo.toml",
    ),
    next: &[
        "canonc check",
        "canonc show arch/firstcanon.canon",
        "canonc build arch/first.canon arch/firstcanon.canon recipes/depo_first.toml recipes/depo.toml",
        "canonc diff lockfiles/first.lock lockfiles/firstcanon.lock --treatment canon",
        "canonc run --lock lockfiles/depo_first.lock",
        "canonc compare lockfiles/depo.lock",
    ],
    matched: (
        files!("depo": "arch/matched.canon", "recipes/depo_matched.toml"),
        &["canonc build recipes/depo_matched.toml", "canonc compare lockfiles/depo_matched.lock"],
    ),
};

/// Text: twenty fables, to be replaced by one's own text.
const TEXT: Template = Template {
    files: files!("text":
        "arch/first.canon",
        "arch/firstcanon.canon",
        "recipes/text_first.toml",
        "recipes/text_firstcanon.toml",
        "recipes/text.toml",
        "texts/fables.txt",
    ),
    next: &[
        "canonc check",
        "canonc build arch/first.canon arch/firstcanon.canon recipes/text_first.toml recipes/text.toml",
        "canonc diff lockfiles/first.lock lockfiles/firstcanon.lock --treatment canon",
        "canonc data prepare texts/fables.txt --lines --out data/fables.index",
        "canonc bind lockfiles/text_first.lock lockfiles/text.lock --data data/fables.index",
        "canonc run --lock lockfiles/text_first.lock",
        "canonc compare lockfiles/text.lock",
    ],
    matched: (
        files!("text": "arch/matched.canon", "recipes/text_matched.toml"),
        &[
            "canonc build recipes/text_matched.toml",
            "canonc bind lockfiles/text_matched.lock --data data/fables.index",
            "canonc compare lockfiles/text_matched.lock",
        ],
    ),
};

pub fn new(args: &NewArgs) -> Outcome {
    let dir = args.dir.as_path();
    out::container(dir)?;
    refuse_occupied(dir)?;
    let Template { files, next, matched } = match args.task {
        NewTask::Depo => DEPO,
        NewTask::Text => TEXT,
    };
    let (more_files, more_commands) = if args.matched { matched } else { (&[][..], &[][..]) };
    for (path, text) in files.iter().chain(more_files) {
        let path = dir.join(path);
        if let Some(folder) = path.parent() {
            disk::create_folders(folder).map_err(|error| Failure::cannot_write(folder, &error))?;
        }
        files::replace(&path, text)?;
        output::note(&format!("wrote {}", shown(&path)));
    }
    let mut then = String::from("next:\n");
    if dir != Path::new(".") {
        then += &format!("  cd {}\n", shown(dir));
    }
    for command in next.iter().chain(more_commands) {
        then += &format!("  {command}\n");
    }
    output::notes(then.trim_end());
    Ok(Exit::Fine)
}

/// A folder may have hidden files, and the notebook that the command is called from.
fn refuse_occupied(dir: &Path) -> Result<(), Failure> {
    let occupies = |entry: io::Result<fs::DirEntry>| {
        let name = entry.ok()?.file_name().to_string_lossy().into_owned();
        (!name.starts_with('.') && !name.ends_with(".ipynb")).then_some(name)
    };
    match fs::read_dir(dir) {
        Ok(entries) => match entries.filter_map(occupies).min() {
            None => Ok(()),
            Some(name) => Err(Failure::bad_input(format!(
                "`{}` is not empty: it has `{}`",
                shown(dir),
                shown(Path::new(&name))
            ))
            .help("name a new folder: `canonc new DIR`")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::cannot_read(dir, &error)),
    }
}
