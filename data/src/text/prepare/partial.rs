//! A preparation in progress: a folder `NAME.partial` with the results so far and a state file, which becomes the
//! prepared file when it is complete.
//!
//! A resume uses exactly the part that the state describes, truncated there and checked against its digest. It never
//! uses a state of other inputs, another tokenizer or other rules. Two processes never write one file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use dsl::Problem;
use serde::{Deserialize, Serialize};

use super::super::identity::Blocks;
use super::super::layout::{ENTRY, START, documents_hasher, width};
use super::super::lines::{BadLine, LineCounts, OnBadLine};
use super::super::losses::Losses;
use super::super::prepared::{FileEntry, Manifest, SourceEntry, TokenizerEntry, trailer_digest};
use super::input::RecordPosition;
use super::piece::{InputPosition, TokenizedPiece, inputs};
use super::{Done, Fault, Input, News, Request};

/// Progress, as written to the state file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    version: u32,
    /// Digest of everything that affects the result.
    request: String,
    file: usize,
    place: RecordPosition,
    read: u64,
    documents: u64,
    tokens: u64,
    /// Digests of the tokens so far and of their documents' entries.
    tokens_digest: String,
    documents_digest: String,
    files: Vec<FileEntry>,
    bad: Vec<(String, u64, String)>,
    #[serde(default)]
    losses: Losses,
}

/// Writes bytes to a file and keeps each block's digest.
struct Sealing {
    to: BufWriter<File>,
    blocks: Blocks,
}

impl Sealing {
    fn new(file: File) -> Sealing {
        Sealing { to: BufWriter::with_capacity(1 << 18, file), blocks: Blocks::default() }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.blocks.note(bytes);
        self.to.write_all(bytes)
    }

    /// Continues after the first `length` bytes of the file, or returns why it cannot.
    fn take_up(&mut self, length: u64, digest: &str) -> io::Result<Option<&'static str>> {
        let file = self.to.get_mut();
        if file.metadata()?.len() < length {
            return Ok(Some("a part of it is missing"));
        }
        file.set_len(length)?;
        file.rewind()?;
        let mut reader = BufReader::with_capacity(1 << 18, file.try_clone()?);
        let mut buffer = vec![0; 1 << 18];
        loop {
            let count = reader.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            self.blocks.note(buffer.get(..count).unwrap_or_default());
        }
        self.to.get_mut().seek(SeekFrom::End(0))?;
        Ok((self.blocks.digest() != digest).then_some("it is damaged"))
    }
}

/// A preparation in progress.
pub(super) struct Partial<'a> {
    request: &'a Request<'a>,
    request_digest: String,
    /// The state of each input when this process began.
    states: Vec<String>,
    out: PathBuf,
    folder: PathBuf,
    /// Held while this process writes here.
    _lock: File,
    tokens: Sealing,
    entries: Sealing,
    at: InputPosition,
    done: Done,
    /// Bytes on disk of the files before the current one.
    before: Vec<u64>,
    reports: Vec<LineCounts>,
    bad: Vec<BadLine>,
    losses: Losses,
    since: u64,
    pieces: u64,
    saves: u64,
}

/// The result of a preparation that already has its final file, so that only its folder is left to remove.
pub(super) fn finished(
    request: &Request<'_>,
    out: &Path,
) -> Result<Option<(LineCounts, Losses, u64)>, Problem> {
    let folder = folder_of(out);
    let cannot = |error: io::Error| cannot_read(&folder, &error);
    let Some(text) = state_text(&folder).map_err(cannot)? else { return Ok(None) };
    let Ok(state) = toml::from_str::<State>(&text) else { return Ok(None) };
    // The tokens have become the file; in any other state they are still here.
    if folder.join("tokens").try_exists().map_err(cannot)?
        || !out.try_exists().map_err(|error| cannot_read(out, &error))?
        || state.request != digest_of(request, &states_of(request)?)
    {
        return Ok(None);
    }
    let mut all = LineCounts::default();
    for entry in &state.files {
        all.add(entry.report());
    }
    fs::remove_dir_all(&folder).map_err(|error| cannot_write(&folder, &error))?;
    Ok(Some((all, state.losses, state.tokens)))
}

/// The text of the state file; `None` if there is none that canonc can have written.
fn state_text(folder: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(folder.join("state.toml")) {
        Ok(text) => Ok(Some(text)),
        Err(error) if disk::is_unread(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

fn folder_of(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    out.with_file_name(name)
}

impl<'a> Partial<'a> {
    pub(super) fn open(
        request: &'a Request<'a>,
        out: &Path,
        on_news: &mut dyn FnMut(&News),
    ) -> Result<Partial<'a>, Problem> {
        let folder = folder_of(out);
        let cannot = |error: io::Error| cannot_write(&folder, &error);
        disk::create_folders(&folder).map_err(cannot)?;
        let lock = File::create(folder.join("lock")).map_err(cannot)?;
        if lock.try_lock().is_err() {
            return Err(Problem::input(
                format!("another canonc is writing to {}", folder.display()),
                "wait until it finishes, or name another file with --out",
            ));
        }
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options.open(folder.join(name)).map_err(cannot)
        };
        let mut before = vec![0];
        for input in inputs(request.sources) {
            before.push(before.last().copied().unwrap_or(0) + input.bytes);
        }
        let states = states_of(request)?;
        let mut partial = Partial {
            request,
            request_digest: digest_of(request, &states),
            states,
            out: out.to_owned(),
            tokens: Sealing::new(open("tokens")?),
            entries: Sealing::new(open("documents")?),
            folder: folder.clone(),
            _lock: lock,
            at: InputPosition { file: 0, place: RecordPosition::default() },
            done: Done::default(),
            reports: vec![LineCounts::default(); before.len() - 1],
            before,
            bad: Vec::new(),
            losses: Losses::default(),
            since: 0,
            pieces: 0,
            saves: 0,
        };
        if !partial.resume(on_news).map_err(cannot)? {
            partial.begin().map_err(cannot)?;
        }
        Ok(partial)
    }

    /// Whether the work goes on from a state file. If it has one that cannot be used, that is news.
    fn resume(&mut self, on_news: &mut dyn FnMut(&News)) -> io::Result<bool> {
        let Some(text) = state_text(&self.folder)? else { return Ok(false) };
        match self.take_up(&text)? {
            None => {
                on_news(&News::Resumed(self.done));
                Ok(true)
            }
            Some(reason) => {
                on_news(&News::Anew(reason));
                Ok(false)
            }
        }
    }

    /// Continues from a state, or returns why it cannot.
    fn take_up(&mut self, text: &str) -> io::Result<Option<&'static str>> {
        let Ok(state) = toml::from_str::<State>(text) else {
            return Ok(Some("its state cannot be read"));
        };
        let State {
            version,
            request,
            file,
            place,
            read,
            documents,
            tokens,
            tokens_digest,
            documents_digest,
            files,
            bad,
            losses,
        } = state;
        if version != 1 || request != self.request_digest || files.len() != self.reports.len() {
            return Ok(Some(
                "it was made from other files, with another tokenizer or with other options",
            ));
        }
        let width = width(self.request.tokenizer.info());
        let length = tokens.checked_mul(width).and_then(|n| n.checked_add(START.len() as u64));
        let entries = documents.checked_mul(ENTRY);
        let (Some(length), Some(entries)) = (length, entries) else {
            return Ok(Some("its state cannot be read"));
        };
        for (sealing, length, digest) in [
            (&mut self.tokens, length, &tokens_digest),
            (&mut self.entries, entries, &documents_digest),
        ] {
            if let Some(reason) = sealing.take_up(length, digest)? {
                return Ok(Some(reason));
            }
        }
        self.at = InputPosition { file, place };
        self.done = Done { read, documents, tokens };
        self.losses = losses;
        for (report, entry) in self.reports.iter_mut().zip(files) {
            *report = entry.report();
        }
        self.bad =
            bad.into_iter().map(|(file, line, reason)| BadLine { file, line, reason }).collect();
        Ok(None)
    }

    /// Starts from nothing.
    fn begin(&mut self) -> io::Result<()> {
        let state = self.folder.join("state.toml");
        match fs::remove_file(&state) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        for sealing in [&mut self.tokens, &mut self.entries] {
            sealing.to.get_mut().set_len(0)?;
            sealing.to.get_mut().rewind()?;
            sealing.blocks = Blocks::default();
        }
        self.tokens.write(START)
    }

    pub(super) fn at(&self) -> InputPosition {
        self.at
    }

    pub(super) fn done(&self) -> Done {
        self.done
    }

    /// Whether a line was found that must not be skipped.
    pub(super) fn refused(&self) -> bool {
        self.request.on_bad_line == OnBadLine::Refuse && !self.bad.is_empty()
    }

    /// The report on all files read so far.
    pub(super) fn report(&self) -> LineCounts {
        let mut all = LineCounts::default();
        for report in &self.reports {
            all.add(report.clone());
        }
        all.first_bad.clone_from(&self.bad);
        all
    }

    pub(super) fn losses(&self) -> Losses {
        self.losses
    }

    pub(super) fn add(&mut self, piece: TokenizedPiece) -> Result<(), Problem> {
        let TokenizedPiece { after, tokens, documents, mut report, losses, weight, read } = piece;
        self.losses.add(losses);
        let cannot = |folder: &Path| {
            let folder = folder.to_owned();
            move |error: io::Error| cannot_write(&folder, &error)
        };
        let cannot = cannot(&self.folder);
        self.tokens.write(&tokens).map_err(&cannot)?;
        for (count, digest) in &documents {
            self.done.tokens += count;
            self.entries.write(&self.done.tokens.to_le_bytes()).map_err(&cannot)?;
            self.entries.write(digest.as_bytes()).map_err(&cannot)?;
        }
        self.done.documents += documents.len() as u64;
        self.done.read = self.before.get(after.file).copied().unwrap_or(0) + read;
        self.at = after;
        let mut bad =
            LineCounts { first_bad: std::mem::take(&mut self.bad), ..LineCounts::default() };
        bad.add(LineCounts {
            first_bad: std::mem::take(&mut report.first_bad),
            ..LineCounts::default()
        });
        self.bad = bad.first_bad;
        if let Some(of_file) = self.reports.get_mut(after.file) {
            of_file.add(report);
        }
        self.pieces += 1;
        self.breaks(Fault::Piece(self.pieces));
        self.since += weight as u64;
        if self.since >= self.request.checkpoint {
            self.save()?;
        }
        Ok(())
    }

    /// Saves the progress so far as a resume point.
    pub(super) fn save(&mut self) -> Result<(), Problem> {
        self.since = 0;
        self.saves += 1;
        let folder = self.folder.clone();
        let cannot = |error: io::Error| cannot_write(&folder, &error);
        for sealing in [&mut self.tokens, &mut self.entries] {
            sealing.to.flush().map_err(cannot)?;
            sealing.to.get_mut().sync_data().map_err(cannot)?;
        }
        self.breaks(Fault::StateBefore(self.saves));
        let state = State {
            version: 1,
            request: self.request_digest.clone(),
            file: self.at.file,
            place: self.at.place,
            read: self.done.read,
            documents: self.done.documents,
            tokens: self.done.tokens,
            tokens_digest: self.tokens.blocks.digest(),
            documents_digest: self.entries.blocks.digest(),
            files: self.files().collect(),
            bad: self
                .bad
                .iter()
                .map(|BadLine { file, line, reason }| (file.clone(), *line, reason.clone()))
                .collect(),
            losses: self.losses,
        };
        let text = toml::to_string(&state).map_err(|error| cannot(io::Error::other(error)))?;
        disk::replace(&self.folder.join("state.toml"), text.as_bytes(), || {
            self.breaks(Fault::StateWritten(self.saves));
            Ok(())
        })
        .map_err(cannot)
    }

    fn files(&self) -> impl Iterator<Item = FileEntry> {
        let inputs = inputs(self.request.sources).into_iter();
        inputs.zip(&self.reports).map(|(input, report)| FileEntry::from_report(&input.name, report))
    }

    /// Writes the data after the tokens and gives the file its name.
    pub(super) fn finish(mut self) -> Result<(), Problem> {
        let folder = self.folder.clone();
        let cannot = |error: io::Error| cannot_write(&folder, &error);
        let mut sources = self.sources()?;
        // From here on the state says where the tokens end, so another process can truncate there and repeat this.
        self.save()?;
        let documents_at = self.tokens.blocks.length;
        let identity = self.append_entries(&mut sources)?;
        self.inputs_as_they_were()?;
        let manifest = Manifest {
            version: 2,
            identity: identity.to_hex().to_string(),
            documents: self.done.documents,
            tokens: self.done.tokens,
            tokenizer: TokenizerEntry::from_info(self.request.tokenizer.info()),
            sources,
        };
        let manifest =
            toml::to_string(&manifest).map_err(|error| cannot(io::Error::other(error)))?;
        let blocks = self.tokens.blocks.all();
        let blocks_at = self.tokens.blocks.length;
        let manifest_at = blocks_at + blocks.len() as u64;
        let offsets = [documents_at, blocks_at, manifest_at].map(u64::to_le_bytes).concat();
        let digest = trailer_digest(&blocks, manifest.as_bytes(), &offsets);
        let to = &mut self.tokens.to;
        for bytes in [&blocks, manifest.as_bytes(), &offsets, digest.as_bytes()] {
            to.write_all(bytes).map_err(cannot)?;
        }
        to.flush().and_then(|()| to.get_mut().sync_all()).map_err(cannot)?;
        self.breaks(Fault::RenameBefore);
        disk::rename_synced(&self.folder.join("tokens"), &self.out)
            .map_err(|error| cannot_write(&self.out, &error))?;
        self.breaks(Fault::RemoveBefore);
        self.remove()
    }

    /// Writes the documents' entries after the tokens, and fills in the sources' numbers of tokens. Returns the identity
    /// of the documents.
    fn append_entries(&mut self, sources: &mut [SourceEntry]) -> Result<blake3::Hash, Problem> {
        let folder = self.folder.clone();
        let cannot = |error: io::Error| cannot_write(&folder, &error);
        let mut identity = documents_hasher();
        self.entries.to.get_mut().rewind().map_err(cannot)?;
        let mut reader = BufReader::new(self.entries.to.get_ref().try_clone().map_err(cannot)?);
        let mut entry = [0; ENTRY as usize];
        // The digests of the entries as read back.
        let mut again = Blocks::default();
        let (mut number, mut before) = (0, 0);
        for source in sources {
            identity.update(&source.documents.to_le_bytes());
            let mut end = before;
            for _ in 0..source.documents {
                reader.read_exact(&mut entry).map_err(cannot)?;
                again.note(&entry);
                let (end_bytes, digest) = entry.split_at(8);
                end = end_bytes.try_into().map_or(0, u64::from_le_bytes);
                identity.update(digest);
                self.tokens.write(&entry).map_err(cannot)?;
                if number == self.done.documents / 2 {
                    self.tokens.to.flush().map_err(cannot)?;
                    self.breaks(Fault::FinishHalf);
                }
                number += 1;
            }
            source.tokens = end.saturating_sub(before);
            before = end;
        }
        if again.digest() != self.entries.blocks.digest() {
            return Err(Problem::input(
                format!("{} has changed since it was written", folder.join("documents").display()),
                "look for another program that writes there, or a failing disk or memory; the same command prepares \
                 it again",
            ));
        }
        Ok(identity.finalize())
    }

    /// Documents of each source. A source without any is refused.
    fn sources(&self) -> Result<Vec<SourceEntry>, Problem> {
        let mut files = self.files();
        let mut sources: Vec<SourceEntry> = Vec::new();
        for source in self.request.sources {
            let files: Vec<FileEntry> = files.by_ref().take(source.files.len()).collect();
            let documents = files.iter().map(|file| file.documents).sum();
            sources.push(SourceEntry { name: source.name.clone(), documents, tokens: 0, files });
        }
        drop(files);
        if let Some(none) = sources.iter().find(|source| source.documents == 0) {
            let lines: u64 = none.files.iter().map(|file| file.lines).sum();
            let empty: u64 = none.files.iter().map(|file| file.empty).sum();
            let error = Problem::input(
                format!(
                    "source `{}` has no documents: {}, {empty} of them empty documents",
                    none.name,
                    dsl::counted(lines, "line")
                ),
                format!("give it lines with {}, or leave the source out", self.request.field),
            );
            self.clear()?;
            return Err(error);
        }
        Ok(sources)
    }

    /// Refuses a result if a file changed while it was read, since the result would match no state of that file.
    fn inputs_as_they_were(&self) -> Result<(), Problem> {
        for (input, before) in inputs(self.request.sources).into_iter().zip(&self.states) {
            if state_of(input)? != *before {
                return Err(Problem::input(
                    format!("{} changed while it was read", input.name),
                    "wait until nothing writes to it, and repeat the command",
                ));
            }
        }
        Ok(())
    }

    /// Removes the folder.
    pub(super) fn remove(self) -> Result<(), Problem> {
        self.clear()
    }

    fn clear(&self) -> Result<(), Problem> {
        fs::remove_dir_all(&self.folder).map_err(|error| cannot_write(&self.folder, &error))
    }

    fn breaks(&self, at: Fault) {
        if self.request.fault == Some(at) {
            std::process::abort();
        }
    }
}

/// Identifies a state of an input file, to detect changes.
fn state_of(input: &Input) -> Result<String, Problem> {
    // A pipe can be read only once.
    let Some(path) = &input.path else {
        return Ok(format!("pipe of process {}", std::process::id()));
    };
    let metadata = fs::metadata(path).map_err(|error| {
        let message = format!("cannot read {}: {error}", input.name);
        disk::cannot_read(&error, message, "check that the file exists and is readable")
    })?;
    let changed = metadata.modified().ok();
    let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(format!("{} bytes, changed {changed:?}", metadata.len()))
}

fn states_of(request: &Request<'_>) -> Result<Vec<String>, Problem> {
    inputs(request.sources).into_iter().map(state_of).collect()
}

/// The digest of everything that affects the result, and of each input's state.
fn digest_of(request: &Request<'_>, states: &[String]) -> String {
    let Request {
        sources,
        field,
        plain,
        on_bad_line,
        tokenizer,
        workers: _,
        checkpoint: _,
        fault: _,
    } = request;
    let mut hasher = blake3::Hasher::new_derive_key("canonc 1 data text request");
    let mut add = |text: String| {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    };
    add(format!("{field:?} {plain:?} {on_bad_line:?} {}", tokenizer.info().digest));
    let mut states = states.iter();
    for source in *sources {
        add(format!("source {}", source.name));
        for (input, state) in source.files.iter().zip(&mut states) {
            add(format!("file {} {:?} {state}", input.name, input.path));
        }
    }
    hasher.finalize().to_hex().to_string()
}

fn cannot_read(path: &Path, error: &io::Error) -> Problem {
    Problem::machine(
        format!("cannot read {}: {error}", path.display()),
        "check the disk and the machine, and repeat the command",
    )
}

fn cannot_write(path: &Path, error: &io::Error) -> Problem {
    if let Some(problem) = disk::not_durable(error, path.display()) {
        return problem;
    }
    Problem::machine(
        format!("cannot write {}: {error}", path.display()),
        "check that the folder exists, is writable and has free space",
    )
}
