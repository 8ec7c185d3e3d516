//! `canonc new`: a first architecture, with and without Canon layers, and the experiment that compares them.
//!
//! In: a folder that is empty or not there. Out: files in it, and what to type next. Must stay true:
//! nothing that exists is touched; what is written passes `canonc check` and `canonc build` as it
//! stands (the tests do both).

use std::fs;
use std::io;
use std::path::Path;

use crate::args::NewArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::{files, output};

/// Every file that is written, by path.
const FILES: [(&str, &str); 5] = [
    ("arch/first.canon", include_str!("new/arch/first.canon")),
    ("arch/firstcanon.canon", include_str!("new/arch/firstcanon.canon")),
    ("recipes/depo_first.toml", include_str!("new/recipes/depo_first.toml")),
    ("recipes/depo_firstcanon.toml", include_str!("new/recipes/depo_firstcanon.toml")),
    ("recipes/depo.toml", include_str!("new/recipes/depo.toml")),
];

/// What shows all of it, in order.
const NEXT: [&str; 5] = [
    "canonc check",
    "canonc show arch/firstcanon.canon",
    "canonc build arch/first.canon arch/firstcanon.canon recipes/depo.toml",
    "canonc diff lockfiles/first.lock lockfiles/firstcanon.lock --treatment canon",
    "canonc compare lockfiles/depo.lock",
];

pub(crate) fn new(args: &NewArgs) -> Outcome {
    let dir = args.dir.as_path();
    refuse_occupied(dir)?;
    for (path, text) in FILES {
        let path = dir.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| Failure::cannot_write(folder, &error))?;
        }
        files::replace(&path, text)?;
        output::note(&format!("wrote {}", shown(&path)));
    }
    let mut next = String::from("next:\n");
    if dir != Path::new(".") {
        next += &format!("  cd {}\n", shown(dir));
    }
    for command in NEXT {
        next += &format!("  {command}\n");
    }
    output::note(next.trim_end());
    Ok(Exit::Fine)
}

fn refuse_occupied(dir: &Path) -> Result<(), Failure> {
    match fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Failure::bad_input(format!("`{}` is not empty", shown(dir)))
                .help("name a folder that is not there yet: `canonc new DIR`")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::cannot_read(dir, &error)),
    }
}
