//! Reads prepared files of any version, and writes those of version 1, which hold bytes.
//!
//! A file is either complete or absent. The digest at the end of version 1 detects any changed or missing byte before
//! anything is used, and sizes in a damaged file never decide an allocation.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use dsl::Problem;

use super::index::{Documents, Scratch, SourceRange, TextIndex};
use super::layout::START;
use super::prepared;

const MAGIC: &[u8] = b"canonc text ";
const VERSION: &[u8] = b"1\n";

/// Writes documents that are in memory to `path`, over any file already there, in version 1.
pub fn save(index: &TextIndex, path: &Path) -> Result<(), Problem> {
    let written = disk::replace_with(path, |file| write(index, &mut BufWriter::new(file)));
    written.flatten().map_err(|error| {
        Problem::input(
            format!("cannot write {}: {error}", path.display()),
            "check that the folder exists, is writable and has free space",
        )
    })
}

/// Opens a prepared file of any version.
pub fn load(path: &Path) -> Result<TextIndex, Problem> {
    let unreadable = |error: io::Error| prepared::unreadable(path, &error);
    if path.is_dir() {
        return Err(Problem::input(
            format!("{} is a folder, not prepared documents", path.display()),
            "name a file written by `canonc data prepare`",
        ));
    }
    let mut file = disk::open_large(path).map_err(unreadable)?;
    let mut start = [0; START.len()];
    match file.read_exact(&mut start) {
        Ok(()) if start == *START => {
            return Ok(TextIndex::of_prepared(prepared::open(file, path)?));
        }
        Err(error) if disk::is_of_machine(&error) => return Err(unreadable(error)),
        Ok(()) | Err(_) => {}
    }
    file.rewind().map_err(unreadable)?;
    let left = file.metadata().map_err(unreadable)?.len();
    let mut reader = HashingReader { file: BufReader::new(file), left, hasher: hasher() };
    match read(&mut reader) {
        Ok(index) => Ok(index),
        Err(Fault::Io(error)) => Err(unreadable(error)),
        Err(Fault::Version(version)) => Err(Problem::input(
            format!("{} has version {version}, but this canonc reads 1 and 2", path.display()),
            "prepare it again with `canonc data prepare`",
        )),
        Err(Fault::Damaged(how)) => Err(Problem::input(
            format!("{} is damaged: {how}", path.display()),
            "prepare it again with `canonc data prepare`, or restore the file",
        )),
    }
}

fn hasher() -> blake3::Hasher {
    blake3::Hasher::new_derive_key("canonc 1 data text file")
}

/// magic, version, sources (name, documents (length)), bytes, digest of all of it; integers u64 little-endian.
pub fn write(index: &TextIndex, to: &mut impl Write) -> io::Result<()> {
    let mut hasher = hasher();
    let mut write = |bytes: &[u8]| {
        hasher.update(bytes);
        to.write_all(bytes)
    };
    write(MAGIC)?;
    write(VERSION)?;
    write(&(index.sources().len() as u64).to_le_bytes())?;
    for SourceRange { name, documents } in index.sources() {
        write(&(name.len() as u64).to_le_bytes())?;
        write(name.as_bytes())?;
        write(&u64::from(documents.end - documents.start).to_le_bytes())?;
        for document in documents.clone() {
            let tokens = index.tokens(document).map_err(io::Error::other)?;
            write(&tokens.to_le_bytes())?;
        }
    }
    let mut scratch = Scratch::default();
    let (mut tokens, mut bytes) = (Vec::new(), Vec::new());
    for document in 0..index.len() as u32 {
        tokens.clear();
        bytes.clear();
        index.read(document, 0, usize::MAX, &mut scratch, &mut tokens).map_err(io::Error::other)?;
        bytes.extend(tokens.iter().map(|&token| token as u8));
        write(&bytes)?;
    }
    to.write_all(hasher.finalize().as_bytes())?;
    to.flush()
}

/// Whether a file begins like an index of any version, even a damaged one.
pub fn is_index(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    disk::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start == MAGIC)
}

enum Fault {
    Io(io::Error),
    Version(String),
    Damaged(String),
}

struct HashingReader {
    file: BufReader<File>,
    left: u64,
    hasher: blake3::Hasher,
}

impl HashingReader {
    fn bytes(&mut self, count: u64) -> Result<Vec<u8>, Fault> {
        if count > self.left {
            return Err(Fault::Damaged(format!(
                "{count} bytes should follow, but only {} remain",
                self.left
            )));
        }
        let mut bytes = vec![0; count as usize];
        self.file.read_exact(&mut bytes).map_err(Fault::Io)?;
        self.hasher.update(&bytes);
        self.left -= count;
        Ok(bytes)
    }

    fn integer(&mut self) -> Result<u64, Fault> {
        let bytes = self.bytes(8)?;
        Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }
}

fn read(reader: &mut HashingReader) -> Result<TextIndex, Fault> {
    let not_ours = || Fault::Damaged("it does not begin like a prepared text file".to_owned());
    match reader.bytes(MAGIC.len() as u64) {
        Ok(magic) if magic == MAGIC => {}
        Err(Fault::Io(error)) if disk::is_of_machine(&error) => return Err(Fault::Io(error)),
        Ok(_) | Err(_) => return Err(not_ours()),
    }
    let version = reader.bytes(VERSION.len() as u64)?;
    if version != VERSION {
        return Err(Fault::Version(String::from_utf8_lossy(&version).trim_end().to_owned()));
    }
    let mut sources = Vec::new();
    for _ in 0..reader.integer()? {
        let length = reader.integer()?;
        let name = String::from_utf8(reader.bytes(length)?)
            .map_err(|_| Fault::Damaged("a source's name is not UTF-8".to_owned()))?;
        let count = reader.integer()?;
        let bytes = reader.bytes(count.checked_mul(8).ok_or_else(|| {
            Fault::Damaged(format!("source `{name}` claims {count} documents"))
        })?)?;
        let lengths: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|bytes| bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
            .collect();
        sources.push((name, lengths));
    }
    let mut documents = Documents::default();
    for (name, lengths) in sources {
        for length in lengths {
            documents.push(&reader.bytes(length)?);
        }
        let end = documents.len();
        documents.end_source(name, end).map_err(|error| Fault::Damaged(error.message))?;
    }
    let computed = reader.hasher.finalize();
    let written = reader.bytes(blake3::OUT_LEN as u64)?;
    if written != computed.as_bytes() || reader.left > 0 {
        return Err(Fault::Damaged("the digest at its end does not match its contents".to_owned()));
    }
    documents.finish().map_err(|error| Fault::Damaged(error.message))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::super::tests::index_of;
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("canonc-text-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn an_index_survives_its_file_and_every_damage_is_found() {
        let folder = folder("damage");
        let path = folder.join("corpus.text");
        let index =
            index_of(&[("a", vec!["one".into(), "zwei".into()]), ("b", vec!["trois".into()])]);
        save(&index, &path).unwrap();
        let loaded = load(&path).unwrap();
        assert_eq!((loaded.sources(), loaded.identity()), (index.sources(), index.identity()));
        let all = |index: &TextIndex| -> Vec<Vec<u8>> {
            (0..3).map(|number| index.document(number).to_vec()).collect()
        };
        assert_eq!(all(&loaded), all(&index));
        assert!(is_index(&path).unwrap());
        // A second save replaces the file and leaves no other file in the folder.
        save(&index, &path).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);

        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&path, &bad).unwrap();
            let message = load(&path).unwrap_err().message;
            let in_version = (MAGIC.len()..MAGIC.len() + VERSION.len()).contains(&at);
            assert!(
                message.contains(if in_version { "has version" } else { "is damaged" }),
                "byte {at}: {message}"
            );
            fs::write(&path, &good[..at]).unwrap();
            assert!(load(&path).unwrap_err().message.contains("is damaged"), "cut at {at}");
        }
        fs::write(&path, [&good[..], b"x"].concat()).unwrap();
        assert!(load(&path).is_err());
        fs::write(&path, [MAGIC, b"2\n", &good[MAGIC.len() + 2..]].concat()).unwrap();
        assert!(load(&path).unwrap_err().message.contains("version 2"));
        assert!(is_index(&path).unwrap());
        fs::write(&path, b"canonc tex").unwrap();
        assert!(!is_index(&path).unwrap());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn paths_that_cannot_be_used_say_so() {
        let folder = folder("paths");
        let index = index_of(&[("a", vec!["one".into()])]);
        let error = save(&index, &folder.join("missing/corpus.text")).unwrap_err();
        assert!(error.message.contains("cannot write"), "{error}");
        let error = load(&folder.join("corpus.text")).unwrap_err();
        assert!(error.message.contains("cannot read"), "{error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }
}
