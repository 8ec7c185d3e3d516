//! What a file contains, by its first bytes, whatever its name says.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::open;

/// Bytes that are enough to tell.
pub const START: usize = 512;
/// The largest memory of a decoder: the window of `zstd --long=31`, or a dictionary of xz.
const WINDOW_LOG: u32 = 31;
/// The same in KiB, with room for the decoder itself.
const XZ_KIB: u32 = (1 << (WINDOW_LOG - 10)) + (64 << 10);

/// The longest header of safetensors.
const SAFETENSORS_HEADER: u32 = 100_000_000;

/// A kind of content that has marks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// No bytes at all.
    Empty,
    /// A pointer of Git LFS.
    LfsPointer,
    /// A page of HTML.
    Html,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstandard,
    /// xz.
    Xz,
    /// bzip2.
    Bzip2,
    /// A frame of LZ4.
    Lz4,
    /// 7-Zip.
    SevenZip,
    /// A zip archive, which is also what `torch.save` writes.
    Zip,
    /// A tar archive.
    Tar,
    /// A Parquet table.
    Parquet,
    /// Weights in safetensors.
    Safetensors,
    /// A pickle outside of an archive.
    Pickle,
    /// Weights of llama.cpp.
    Gguf,
    /// A file of HDF5, as Keras writes weights.
    Hdf5,
    /// Text in UTF-16.
    Utf16,
    /// Text in UTF-32.
    Utf32,
    /// None of these.
    Other,
}

/// Marks at the beginning of files. Longer ones precede those that they begin with.
const MARKS: [(&[u8], Content); 16] = [
    (b"version https://git-lfs.github.com/spec/", Content::LfsPointer),
    (b"\x1f\x8b", Content::Gzip),
    (b"\x28\xb5\x2f\xfd", Content::Zstandard),
    (b"\xfd7zXZ\0", Content::Xz),
    (b"\x04\x22\x4d\x18", Content::Lz4),
    (b"7z\xbc\xaf\x27\x1c", Content::SevenZip),
    (b"PK\x03\x04", Content::Zip),
    (b"PK\x05\x06", Content::Zip),
    (b"\x80\x02", Content::Pickle),
    (b"\x80\x03", Content::Pickle),
    (b"\x80\x04", Content::Pickle),
    (b"\x89HDF\r\n\x1a\n", Content::Hdf5),
    (b"\xff\xfe\0\0", Content::Utf32),
    (b"\0\0\xfe\xff", Content::Utf32),
    (b"\xff\xfe", Content::Utf16),
    (b"\xfe\xff", Content::Utf16),
];

impl Content {
    /// The content of a file that begins like this.
    pub fn of_start(start: &[u8]) -> Content {
        if start.is_empty() {
            return Content::Empty;
        }
        // It begins with a number of any bytes, the length of its header: another kind's mark, by chance.
        if let [a, b, c, d, 0, 0, 0, 0, b'{', ..] = start
            && u32::from_le_bytes([*a, *b, *c, *d]) <= SAFETENSORS_HEADER
        {
            return Content::Safetensors;
        }
        if let Some((_, content)) = MARKS.iter().find(|(mark, _)| start.starts_with(mark)) {
            return *content;
        }
        match start {
            // Words that a text may begin with, so what follows counts, too.
            [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', b'Y', b'&', b'S', b'Y', ..]
            | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, b'r', b'E', b'8', b'P', 0x90, ..] => {
                return Content::Bzip2;
            }
            [b'P', b'A', b'R', b'1', 0x15, ..] => return Content::Parquet,
            [b'G', b'G', b'U', b'F', _, 0, 0, 0, ..] => return Content::Gguf,
            // A frame that other readers skip may come first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => return Content::Zstandard,
            // Latin letters in UTF-16 and UTF-32 without a mark.
            [a, 0, 0, 0, b, 0, 0, 0, ..] | [0, 0, 0, a, 0, 0, 0, b, ..]
                if is_ascii(*a) && is_ascii(*b) =>
            {
                return Content::Utf32;
            }
            [a, 0, b, 0, ..] | [0, a, 0, b, ..] if is_ascii(*a) && is_ascii(*b) => {
                return Content::Utf16;
            }
            _ => {}
        }
        if start.get(257..262) == Some(b"ustar") {
            return Content::Tar;
        }
        let text = start.trim_ascii_start();
        let begins =
            |tag: &[u8]| text.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
        if begins(b"<!doctype html") || begins(b"<html") {
            return Content::Html;
        }
        Content::Other
    }

    /// The content of a file.
    pub fn of_file(path: &Path) -> io::Result<Content> {
        let mut start = Vec::new();
        open(path)?.take(START as u64).read_to_end(&mut start)?;
        Ok(Content::of_start(&start))
    }

    /// Its name in a sentence: "it is …".
    pub fn name(self) -> &'static str {
        match self {
            Content::Empty => "empty",
            Content::LfsPointer => "a pointer of Git LFS instead of the file itself",
            Content::Html => "a page of HTML, such as a server sends instead of a file",
            Content::Gzip => "compressed by gzip",
            Content::Zstandard => "compressed by zstd",
            Content::Xz => "compressed by xz",
            Content::Bzip2 => "compressed by bzip2",
            Content::Lz4 => "compressed by lz4",
            Content::SevenZip => "an archive of 7-Zip",
            Content::Zip => "a zip archive",
            Content::Tar => "a tar archive",
            Content::Parquet => "a Parquet table",
            Content::Safetensors => "a file of safetensors",
            Content::Pickle => "a pickle, as torch.save wrote it before PyTorch 1.6",
            Content::Gguf => "a GGUF file of llama.cpp",
            Content::Hdf5 => "an HDF5 file",
            Content::Utf16 => "text in UTF-16",
            Content::Utf32 => "text in UTF-32",
            Content::Other => "of another kind",
        }
    }

    /// What to do about a file that should contain something else.
    pub fn help(self) -> Option<&'static str> {
        match self {
            Content::Empty => Some("download or copy it again"),
            Content::LfsPointer => Some("download it: `git lfs pull` in its repository"),
            Content::Html => Some(
                "download it again; a private or gated file needs a login, such as `hf auth login`",
            ),
            Content::Gzip => Some("decompress it: `gzip -dk FILE`"),
            Content::Zstandard => Some("decompress it: `zstd -d FILE`"),
            Content::Xz => Some("decompress it: `xz -dk FILE`"),
            Content::Bzip2 => Some("decompress it: `bzip2 -dk FILE`"),
            Content::Lz4 => Some("decompress it: `lz4 -d FILE`"),
            Content::SevenZip => Some("unpack it: `7z x FILE`"),
            Content::Zip => Some("unpack it: `unzip FILE`"),
            Content::Tar => Some("unpack it: `tar xf FILE`"),
            Content::Utf16 => Some("convert it: `iconv -f UTF-16 -t UTF-8 FILE > NEW`"),
            Content::Utf32 => Some("convert it: `iconv -f UTF-32 -t UTF-8 FILE > NEW`"),
            Content::Pickle => {
                Some("load it with `torch.load` and write it again with `torch.save`")
            }
            Content::Parquet
            | Content::Safetensors
            | Content::Gguf
            | Content::Hdf5
            | Content::Other => None,
        }
    }
}

fn is_ascii(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte.is_ascii_whitespace()
}

/// The text in a stream: decompressed if it is compressed, whatever its name says. An archive, text in another
/// encoding, or the end of the stream inside a compressed frame is an error.
pub fn unpacked<R: BufRead + Send + 'static>(mut from: R) -> io::Result<Box<dyn BufRead + Send>> {
    let content = Content::of_start(from.fill_buf()?);
    let wide = |reader: Box<dyn Read + Send>| -> Box<dyn BufRead + Send> {
        Box::new(BufReader::with_capacity(1 << 17, reader))
    };
    Ok(match content {
        Content::Gzip => wide(Box::new(flate2::bufread::MultiGzDecoder::new(from))),
        Content::Zstandard => {
            let mut decoder = zstd::Decoder::with_buffer(from)?;
            decoder.window_log_max(WINDOW_LOG)?;
            wide(Box::new(decoder))
        }
        Content::Xz => wide(Box::new(lzma_rust2::XzReader::new_mem_limit(from, true, XZ_KIB))),
        Content::Bzip2 => wide(Box::new(bzip2::bufread::MultiBzDecoder::new(from))),
        Content::LfsPointer
        | Content::Lz4
        | Content::SevenZip
        | Content::Zip
        | Content::Tar
        | Content::Safetensors
        | Content::Pickle
        | Content::Gguf
        | Content::Hdf5
        | Content::Utf16
        | Content::Utf32 => {
            let message = format!("it is {}", content.name());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        // A page of HTML may be a document.
        Content::Empty | Content::Html | Content::Parquet | Content::Other => Box::new(from),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const TEXT: &[u8] = b"{\"text\": \"one\"}\n{\"text\": \"two\"}\n";

    fn read(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        unpacked(io::Cursor::new(bytes))?.read_to_end(&mut text)?;
        Ok(text)
    }

    fn gzip() -> Vec<u8> {
        let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        to.write_all(TEXT).unwrap();
        to.finish().unwrap()
    }

    fn bzip2() -> Vec<u8> {
        let mut to = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
        to.write_all(TEXT).unwrap();
        to.finish().unwrap()
    }

    /// `TEXT` by `xz --check=crc32`.
    const XZ: &[u8] = include_bytes!("../tests/text.xz");

    /// A frame of one uncompressed block, with a window of 2^log bytes.
    fn zstd_frame(log: u8) -> Vec<u8> {
        let block = (TEXT.len() as u32) << 3 | 1;
        let [a, b, c, _] = block.to_le_bytes();
        [&b"\x28\xb5\x2f\xfd\x00"[..], &[(log - 10) << 3, a, b, c], TEXT].concat()
    }

    #[test]
    fn compressed_text_is_known_by_its_content() {
        let skipped = [&b"\x50\x2a\x4d\x18\x02\0\0\0ab"[..], &zstd_frame(17)].concat();
        for packed in [gzip(), bzip2(), XZ.to_vec(), zstd_frame(17), skipped] {
            assert_eq!(read(packed.clone()).unwrap(), TEXT);
            let twice = [packed.clone(), packed.clone()].concat();
            assert_eq!(read(twice).unwrap(), [TEXT, TEXT].concat());
            assert!(read(packed[..packed.len() - 3].to_vec()).is_err());
        }
        assert_eq!(read(TEXT.to_vec()).unwrap(), TEXT);
        assert_eq!(read(Vec::new()).unwrap(), b"");
    }

    #[test]
    fn zstd_long_is_read() {
        for log in [27, 28, 31] {
            assert_eq!(read(zstd_frame(log)).unwrap(), TEXT, "{log}");
        }
        assert!(read(zstd_frame(32)).unwrap_err().to_string().contains("memory"));
    }

    /// The first bytes are a length, here those of other kinds' marks.
    #[test]
    fn the_length_of_a_safetensors_header_is_no_mark() {
        for mark in [&b"\x80\x02"[..], b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff", b"a\0b"] {
            let mut start = mark.to_vec();
            start.resize(8, 0);
            assert_ne!(Content::of_start(&start), Content::Safetensors, "{mark:?}");
            start.extend(b"{\"w\":");
            assert_eq!(Content::of_start(&start), Content::Safetensors, "{mark:?}");
        }
        // A header cannot be that long.
        assert_eq!(Content::of_start(b"\x28\xb5\x2f\xfd\0\0\0\0{"), Content::Zstandard);
    }

    #[test]
    fn an_unreadable_content_is_named_in_the_error() {
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let utf16 = |bytes: fn(u16) -> [u8; 2]| "{\"a\"".encode_utf16().flat_map(bytes).collect();
        let utf32 = |bytes: fn(u32) -> [u8; 4]| "{\"a\"".chars().flat_map(move |c| bytes(c.into()));
        // Pages of HTML, and words that begin like marks, are documents, too.
        for text in [&b"<HTML>"[..], b"BZhang wrote", b"PAR1 is a mark", b"GGUF is a format"] {
            assert_eq!(read(text.to_vec()).unwrap(), text);
        }
        assert!(Content::of_start(b"\n<!DOCTYPE html><title>401</title>").help().is_some());
        let cases: [(Vec<u8>, &str); 12] = [
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:0".to_vec(), "Git LFS"),
            (b"\x04\x22\x4d\x18".to_vec(), "lz4"),
            (b"7z\xbc\xaf\x27\x1c".to_vec(), "7-Zip"),
            (b"PK\x03\x04".to_vec(), "zip archive"),
            (tar, "tar archive"),
            (b"\xff\xfe{\0".to_vec(), "UTF-16"),
            (b"\xfe\xff\0{".to_vec(), "UTF-16"),
            (utf16(u16::to_le_bytes), "UTF-16"),
            (utf16(u16::to_be_bytes), "UTF-16"),
            (b"\xff\xfe\0\0{\0\0\0".to_vec(), "UTF-32"),
            (utf32(u32::to_le_bytes).collect(), "UTF-32"),
            (utf32(u32::to_be_bytes).collect(), "UTF-32"),
        ];
        for (bytes, name) in cases {
            assert!(Content::of_start(&bytes).help().is_some(), "{name}");
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.contains(name), "{name}: {error}");
        }
    }
}
