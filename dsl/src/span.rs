//! Places in texts: byte ranges inside a file's text, on character boundaries.

/// Index of a file in [`Sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Bytes `start..end` of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

impl Span {
    /// Bytes `start..end` of a file; offsets fit 32 bits, because longer texts are refused.
    pub fn new(file: FileId, start: usize, end: usize) -> Span {
        // `Sources` refuses texts beyond 4 GiB (MAX_SOURCE_BYTES), so this cannot truncate.
        Span { file, start: start as u32, end: end as u32 }
    }

    /// Whether all of it is inside the other.
    pub fn is_in(self, outer: Span) -> bool {
        self.file == outer.file && outer.start <= self.start && self.end <= outer.end
    }

    /// The smallest span that covers both; `self`'s file wins.
    pub fn to(self, other: Span) -> Span {
        if self.file != other.file {
            return self;
        }
        Span { file: self.file, start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// All texts of one compilation: the user's files and the embedded standard ones.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<(String, String)>,
}

impl Sources {
    /// No texts yet.
    pub fn new() -> Sources {
        Sources::default()
    }

    /// Adds a text under the name that diagnostics show (a relative path with `/`).
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        self.files.push((name.into(), text.into()));
        FileId((self.files.len() - 1) as u32)
    }

    /// The name under which the text was added; `<unknown>` for an id of other sources.
    pub fn name(&self, file: FileId) -> &str {
        self.files.get(file.0 as usize).map_or("<unknown>", |(name, _)| name)
    }

    /// The text; empty for an id of other sources.
    pub fn text(&self, file: FileId) -> &str {
        self.files.get(file.0 as usize).map_or("", |(_, text)| text)
    }

    /// The file with exactly this name; of two, the one added last (the user's own).
    pub fn find(&self, name: &str) -> Option<FileId> {
        self.files.iter().rposition(|(n, _)| n == name).map(|i| FileId(i as u32))
    }

    /// All ids, in the order added.
    pub fn ids(&self) -> impl Iterator<Item = FileId> + use<> {
        (0..self.files.len() as u32).map(FileId)
    }
}
