//! The files that `canonc data prepare` reads, in an order that depends on their names alone.
//!
//! No file is read twice, even if it is named in two ways.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use data::text::prepare::{
    Format, Input, SourceInput, format_of_file, has_documents, is_open_pipe,
};

use crate::fail::{Failure, shown};
use crate::{files, output};

/// Maximum depth of nested folders.
const DEPTH: usize = 32;
/// Most files of one preparation.
const FILES: usize = 1 << 20;
/// Most skipped files that are listed by name.
const NAMED: usize = 10;

/// The files of each source; sources are in the order in which they are first named.
pub(super) fn sources(typed: &[PathBuf], out: &Path) -> Result<Vec<SourceInput>, Failure> {
    let usual =
        out.file_stem().map_or("text".to_owned(), |stem| stem.to_string_lossy().into_owned());
    let mut sources: Vec<SourceInput> = Vec::new();
    let mut known: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut count = 0;
    for argument in typed {
        let (source, path) = split(argument).unwrap_or((usual.clone(), argument.clone()));
        if source.chars().any(char::is_control) {
            return Err(Failure::bad_input(format!(
                "the source name {source:?} has a control character"
            ))
            .help("write NAME=FILE with a name of letters and digits"));
        }
        let found = if path.as_os_str() == "-" {
            let name = "standard input".to_owned();
            vec![Input { path: None, name, bytes: 0 }]
        } else {
            let metadata = fs::metadata(&path).map_err(|error| files::missing(&path, &error))?;
            match metadata.is_dir() {
                true => folder(&path)?,
                false if !metadata.is_file() && !is_open_pipe(&path) => {
                    return Err(Failure::bad_input(format!(
                        "`{}` is a pipe or a device, not a file",
                        shown(&path)
                    ))
                    .help("name files, folders, or `-` for standard input: `canonc data prepare - < PIPE`"));
                }
                false => vec![file(path, metadata.len())],
            }
        };
        count += found.len();
        if count > FILES {
            return Err(Failure::bad_input(format!("there are more than {FILES} files"))
                .help("prepare them in parts, or merge them"));
        }
        for input in &found {
            let real = match &input.path {
                None => PathBuf::from("-"),
                Some(path) => {
                    fs::canonicalize(path).map_err(|error| files::missing(path, &error))?
                }
            };
            if let Some(before) = known.insert(real, input.name.clone()) {
                let named = match before == input.name {
                    true => format!("`{before}` is given twice"),
                    false => format!("`{before}` and `{}` are the same file", input.name),
                };
                return Err(Failure::bad_input(named).help(
                    "name each file once; the weight in the recipe sets how often a source is read",
                ));
            }
        }
        match sources.iter_mut().find(|known| known.name == source) {
            Some(known) => known.files.extend(found),
            None => sources.push(SourceInput { name: source, files: found }),
        }
    }
    Ok(sources)
}

/// Splits NAME=FILE, unless the whole is a file's name.
fn split(argument: &Path) -> Option<(String, PathBuf)> {
    let (name, path) = argument.to_str()?.split_once('=')?;
    let is_name = !name.is_empty() && !name.contains(['/', '\\']);
    (is_name && !argument.exists()).then(|| (name.to_owned(), PathBuf::from(path)))
}

fn file(path: PathBuf, bytes: u64) -> Input {
    Input { name: shown(&path), path: Some(path), bytes }
}

/// The files of a folder that hold documents.
fn folder(path: &Path) -> Result<Vec<Input>, Failure> {
    let (mut found, mut aside) = (Vec::new(), Vec::new());
    let mut hidden = 0;
    walk(path, &mut Vec::new(), &mut found, &mut aside, &mut hidden)?;
    // In a folder of document files, plain text is a note about them.
    let is_plain = |input: &Input| {
        input.path.as_deref().is_some_and(|path| format_of_file(path).ok() == Some(Format::Text))
    };
    if found.iter().any(|input| !is_plain(input)) {
        aside.extend(found.iter().filter(|input| is_plain(input)).map(|input| input.name.clone()));
        found.retain(|input| !is_plain(input));
    }
    let chunks: Vec<(Chunk, Input)> = found
        .iter()
        .filter_map(|input| Some((chunk(input.path.as_deref()?)?, input.clone())))
        .collect();
    if !chunks.is_empty() {
        aside.extend(
            found
                .iter()
                .filter(|input| input.path.as_deref().and_then(chunk).is_none())
                .map(|input| input.name.clone()),
        );
        found = in_order(chunks);
    }
    if found.is_empty() {
        return Err(Failure::bad_input(format!(
            "the folder `{}` contains no file of documents",
            shown(path)
        ))
        .help(
            "files of documents end in .jsonl, .ndjson, .json, .parquet or .txt, and may be compressed (.zst, .gz, .xz, .bz2); name others one by one",
        ));
    }
    let held = output::counted(found.len() as u64, "file");
    let mut left = Vec::new();
    if !aside.is_empty() {
        aside.sort();
        let rest = if aside.len() > NAMED { ", …" } else { "" };
        aside.truncate(NAMED);
        left.push(format!("not read: {}{rest}", aside.join(", ")));
    }
    if hidden > 0 {
        left.push(format!("left out: {}", output::counted(hidden, "hidden file")));
    }
    if !left.is_empty() {
        output::note(&format!("{}: {held} of documents; {}", shown(path), left.join("; ")));
    }
    Ok(found)
}

fn walk(
    folder: &Path,
    above: &mut Vec<PathBuf>,
    found: &mut Vec<Input>,
    aside: &mut Vec<String>,
    hidden: &mut u64,
) -> Result<(), Failure> {
    let unreadable = |error| Failure::cannot_read(folder, &error);
    let real = fs::canonicalize(folder).map_err(unreadable)?;
    if above.contains(&real) || above.len() >= DEPTH {
        return Err(Failure::bad_input(format!(
            "`{}` links to a folder that contains it, or is {DEPTH} folders deep",
            shown(folder)
        ))
        .help("remove the link, or name the files"));
    }
    above.push(real);
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        entries.push(entry.map_err(unreadable)?.path());
        if entries.len() + found.len() > FILES {
            return Err(Failure::bad_input(format!(
                "there are more than {FILES} files under `{}`",
                shown(folder)
            ))
            .help("prepare them in parts, or merge them"));
        }
    }
    entries.sort();
    for path in entries {
        // Hidden files of the system, an editor or git: `.DS_Store`, `._a.txt`, `.git`.
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            *hidden += 1;
            continue;
        }
        let metadata = fs::metadata(&path).map_err(|error| files::missing(&path, &error))?;
        if metadata.is_dir() {
            walk(&path, above, found, aside, hidden)?;
        } else if metadata.is_file() && has_documents(&path) {
            found.push(file(path, metadata.len()));
        } else {
            aside.push(shown(&path));
        }
    }
    above.pop();
    Ok(())
}

/// The key of one set of chunks, and the number of a chunk in it.
type Chunk = ((PathBuf, String, String), u64);

/// Parses `NAME.chunk.N.jsonl`, Lingua's name of a chunk.
fn chunk(path: &Path) -> Option<Chunk> {
    let name = path.file_name()?.to_str()?;
    let (before, rest) = name.rsplit_once(".chunk.")?;
    let (number, ending) = rest.split_once('.')?;
    let folder = path.parent()?.to_owned();
    Some(((folder, before.to_owned(), ending.to_owned()), number.parse().ok()?))
}

/// Sorts chunks by number, and warns about one that seems to be missing.
fn in_order(chunks: Vec<(Chunk, Input)>) -> Vec<Input> {
    let mut sets: BTreeMap<(PathBuf, String, String), Vec<(u64, Input)>> = BTreeMap::new();
    for ((set, number), input) in chunks {
        sets.entry(set).or_default().push((number, input));
    }
    let mut ordered = Vec::new();
    for ((folder, before, ending), mut chunks) in sets {
        chunks.sort_by(|(one, a), (two, b)| one.cmp(two).then_with(|| a.name.cmp(&b.name)));
        let numbers: Vec<u64> = chunks.iter().map(|(number, _)| *number).collect();
        let last = numbers.last().copied().unwrap_or(0);
        let missing: Vec<String> = (0..last.min(FILES as u64))
            .filter(|number| !numbers.contains(number))
            .take(NAMED)
            .map(|number| number.to_string())
            .collect();
        if !missing.is_empty() {
            output::note(&format!(
                "warning: {}/{before}.chunk.N.{ending}: chunk {} is missing, but chunk {last} exists",
                shown(&folder),
                missing.join(", ")
            ));
        }
        ordered.extend(chunks.into_iter().map(|(_, input)| input));
    }
    ordered
}
