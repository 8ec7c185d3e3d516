//! Checks a Parquet file before the Parquet library reads it, since that library allocates memory for the sizes that a
//! file claims: this module reads and bounds every such size first.
//!
//! Sizes are in Thrift's compact form: a struct is a list of fields, each with a type and a number. Fields with other
//! numbers are skipped.

use std::fs::File;
use std::io::Read;
use std::ops::Range;

use disk::checked::read_at;
use parquet::basic::Compression;

/// Maximum bytes of an unpacked page. Writers make pages of about one megabyte.
const MOST_PAGE: u64 = 64 << 20;
/// Maximum bytes of the list of row groups at the end of a file.
const MOST_FOOTER: u64 = 16 << 20;
/// Maximum bytes of a page's header.
const MOST_HEADER: u64 = 1 << 20;
/// Maximum nesting of structs.
const MOST_DEPTH: u32 = 32;
/// Size of a file's end: the length of its footer, and a magic number.
const TAIL: u64 = 8;

/// Checks the footer: a group of columns has no more children than the file has columns.
pub(super) fn check_footer(file: &File) -> Result<(), String> {
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let Some(tail_at) = length.checked_sub(TAIL) else { return Err(not_whole()) };
    let tail = bytes(file, tail_at..length)?;
    let Some((size, b"PAR1")) = tail.split_first_chunk::<4>() else { return Err(not_whole()) };
    let size = u64::from(u32::from_le_bytes(*size));
    if size > MOST_FOOTER {
        return Err(format!("its footer has {}", dsl::over(size, MOST_FOOTER)));
    }
    let Some(footer_at) = tail_at.checked_sub(size) else { return Err(not_whole()) };
    let footer = bytes(file, footer_at..tail_at)?;
    let mut compact = Compact { bytes: &footer, at: 0 };
    compact.each_field(0, &mut |compact, id, kind| {
        if (id, kind) != (SCHEMA, LIST) {
            return compact.skip(kind, 1);
        }
        let (count, kind) = compact.list()?;
        if kind != STRUCT {
            return Err("its columns are not listed".to_owned());
        }
        for _ in 0..count {
            compact.each_field(1, &mut |compact, id, kind| {
                if (id, kind) != (CHILDREN, I32) {
                    return compact.skip(kind, 2);
                }
                match u64::try_from(compact.number()?) {
                    Ok(children) if children <= count => Ok(()),
                    Ok(_) | Err(_) => Err("its columns are inconsistent".to_owned()),
                }
            })?;
        }
        Ok(())
    })
}

/// Checks every page of a column in one row group. Pages of gzip, Brotli and frames of LZ4 are unpacked, since that is
/// the only way to know their unpacked size.
pub(super) fn check_pages(
    file: &File,
    column: Range<u64>,
    codec: Compression,
) -> Result<(), String> {
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    if column.end > length {
        return Err("a column continues after the end of the file".to_owned());
    }
    let mut at = column.start;
    while at < column.end {
        at = check_page(file, at, column.end, codec)?;
    }
    Ok(())
}

/// Checks the page at `at` of a column that ends at `column_end`, and returns where the page ends.
fn check_page(file: &File, at: u64, column_end: u64, codec: Compression) -> Result<u64, String> {
    let header = bytes(file, at..column_end.min(at + MOST_HEADER))?;
    let (header, length) = PageHeader::read(&header)?;
    let start = at + length as u64;
    let (Ok(unpacked), Ok(packed)) = (u64::try_from(header.unpacked), u64::try_from(header.packed))
    else {
        return Err("a page has a negative size".to_owned());
    };
    let end = start.saturating_add(packed);
    if unpacked > MOST_PAGE || packed > MOST_PAGE {
        let size = unpacked.max(packed);
        return Err(format!(
            "a page has {size} bytes, but at most {MOST_PAGE} are read: write the file with smaller pages"
        ));
    }
    if end > column_end {
        return Err("a page continues after the end of its column".to_owned());
    }
    let Ok(levels) = u64::try_from(header.levels) else {
        return Err("a page has a negative size".to_owned());
    };
    if header.is_packed && levels < packed {
        let page = bytes(file, start + levels..end)?;
        let most = unpacked.saturating_sub(levels);
        if unpacked_size(codec, &page, most + 1) > most {
            return Err(format!("a page has more than the {unpacked} bytes that it claims"));
        }
    }
    Ok(end)
}

/// The sizes that a page claims.
struct PageHeader {
    unpacked: i64,
    packed: i64,
    /// Of a version 2 page: its levels, which are not packed.
    levels: i64,
    /// Whether the values are packed, which only a version 2 page can deny.
    is_packed: bool,
}

impl PageHeader {
    /// Reads a header, and returns its length too.
    fn read(bytes: &[u8]) -> Result<(PageHeader, usize), String> {
        let mut compact = Compact { bytes, at: 0 };
        let mut header = PageHeader { unpacked: 0, packed: 0, levels: 0, is_packed: true };
        compact.each_field(0, &mut |compact, id, kind| match (id, kind) {
            (SECOND, STRUCT) => compact.each_field(1, &mut |compact, id, kind| match (id, kind) {
                (DEFINITIONS | REPETITIONS, I32) => {
                    header.levels = compact.number()?.saturating_add(header.levels);
                    Ok(())
                }
                (IS_PACKED, _) => {
                    header.is_packed = kind == TRUE;
                    compact.skip(kind, 2)
                }
                _ => compact.skip(kind, 2),
            }),
            (UNPACKED, I32) => {
                header.unpacked = compact.number()?;
                Ok(())
            }
            (PACKED, I32) => {
                header.packed = compact.number()?;
                Ok(())
            }
            _ => compact.skip(kind, 1),
        })?;
        Ok((header, compact.at))
    }
}

/// The unpacked size of a page, up to `most`; 0 if the library bounds it by the claimed size.
fn unpacked_size(codec: Compression, page: &[u8], most: u64) -> u64 {
    let reader: Box<dyn Read + '_> = match codec {
        Compression::GZIP(_) => Box::new(flate2::read::MultiGzDecoder::new(page)),
        Compression::BROTLI(_) => Box::new(brotli::Decompressor::new(page, 1 << 12)),
        Compression::LZ4 => Box::new(lz4_flex::frame::FrameDecoder::new(page)),
        Compression::UNCOMPRESSED
        | Compression::SNAPPY
        | Compression::LZO
        | Compression::ZSTD(_)
        | Compression::LZ4_RAW => return 0,
    };
    std::io::copy(&mut reader.take(most), &mut std::io::sink()).unwrap_or(0)
}

/// Field numbers in `parquet.thrift`: of `FileMetaData`, `SchemaElement`, `PageHeader`, `DataPageHeaderV2`.
const SCHEMA: i64 = 2;
const CHILDREN: i64 = 5;
const UNPACKED: i64 = 2;
const PACKED: i64 = 3;
const SECOND: i64 = 8;
const DEFINITIONS: i64 = 5;
const REPETITIONS: i64 = 6;
const IS_PACKED: i64 = 7;

/// Type numbers of fields in the compact form.
const TRUE: u8 = 1;
const I32: u8 = 5;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

struct Compact<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A callback for each field, given its number and type. It reads the field to its end.
type Visit<'v> = dyn FnMut(&mut Compact<'_>, i64, u8) -> Result<(), String> + 'v;

impl Compact<'_> {
    fn byte(&mut self) -> Result<u8, String> {
        let byte = self.bytes.get(self.at).copied().ok_or_else(not_whole)?;
        self.at += 1;
        Ok(byte)
    }

    fn pass(&mut self, count: u64) -> Result<(), String> {
        let left = (self.bytes.len() - self.at) as u64;
        if count > left {
            return Err(not_whole());
        }
        self.at += count as usize;
        Ok(())
    }

    fn unsigned(&mut self) -> Result<u64, String> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(not_whole())
    }

    /// A zigzag-encoded signed number.
    fn number(&mut self) -> Result<i64, String> {
        let number = self.unsigned()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Number of items in a list, and their type.
    fn list(&mut self) -> Result<(u64, u8), String> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.unsigned()?,
            count => u64::from(count),
        };
        // Each item takes at least one byte.
        if count > (self.bytes.len() - self.at) as u64 {
            return Err(not_whole());
        }
        Ok((count, head & 15))
    }

    fn each_field(&mut self, depth: u32, visit: &mut Visit<'_>) -> Result<(), String> {
        if depth > MOST_DEPTH {
            return Err("its structs are nested too deeply".to_owned());
        }
        let mut id = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            id = match head >> 4 {
                0 => self.number()?,
                step => id.saturating_add(i64::from(step)),
            };
            visit(self, id, head & 15)?;
        }
    }

    /// Skips a field.
    fn skip(&mut self, kind: u8, depth: u32) -> Result<(), String> {
        match kind {
            // The type of a field includes its truth value.
            1 | 2 => Ok(()),
            3 => self.pass(1),
            4..=6 => self.unsigned().map(|_| ()),
            7 => self.pass(8),
            8 => {
                let length = self.unsigned()?;
                self.pass(length)
            }
            LIST | 10 => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.skip_item(kind, depth + 1))
            }
            11 => {
                let count = self.unsigned()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.skip_item(kinds >> 4, depth + 1)?;
                    self.skip_item(kinds & 15, depth + 1)
                })
            }
            STRUCT => self.each_field(depth, &mut |compact, _, kind| compact.skip(kind, depth + 1)),
            13 => self.pass(16),
            _ => Err(not_whole()),
        }
    }

    /// Skips an item of a list. There, a truth value is a byte.
    fn skip_item(&mut self, kind: u8, depth: u32) -> Result<(), String> {
        if depth > MOST_DEPTH {
            return Err("its structs are nested too deeply".to_owned());
        }
        match kind {
            1 | 2 => self.pass(1),
            kind => self.skip(kind, depth),
        }
    }
}

fn bytes(file: &File, range: Range<u64>) -> Result<Vec<u8>, String> {
    let length = usize::try_from(range.end.saturating_sub(range.start)).map_err(|_| not_whole())?;
    let mut bytes = vec![0; length];
    read_at(file, &mut bytes, range.start).map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn not_whole() -> String {
    "it is not a complete Parquet file".to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use parquet::basic::{BrotliLevel, GzipLevel, ZstdLevel};
    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::WriterProperties;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// A number in the compact form.
    fn number(value: i64) -> Vec<u8> {
        let mut left = ((value << 1) ^ (value >> 63)) as u64;
        let mut bytes = Vec::new();
        while left > 0x7f {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
        bytes
    }

    /// A page with `body` that claims these sizes.
    fn page(unpacked: i64, packed: i64, body: &[u8]) -> Vec<u8> {
        [&[0x15, 0x00, 0x15], &number(unpacked)[..], &[0x15], &number(packed), &[0x00], body]
            .concat()
    }

    fn judged(bytes: &[u8], codec: Compression) -> Result<(), String> {
        check_pages(&file(bytes), 0..bytes.len() as u64, codec)
    }

    #[test]
    fn tables_of_every_packing_pass() {
        let codecs = [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::GZIP(GzipLevel::default()),
            Compression::BROTLI(BrotliLevel::default()),
            Compression::LZ4,
            Compression::LZ4_RAW,
            Compression::ZSTD(ZstdLevel::default()),
        ];
        for codec in codecs {
            for version in [1, 2] {
                let schema =
                    "message m { optional binary text (UTF8); optional binary more (UTF8); }";
                let schema = Arc::new(parse_message_type(schema).unwrap());
                let version = match version {
                    1 => parquet::file::properties::WriterVersion::PARQUET_1_0,
                    _ => parquet::file::properties::WriterVersion::PARQUET_2_0,
                };
                let properties = WriterProperties::builder()
                    .set_compression(codec)
                    .set_writer_version(version)
                    .set_data_page_size_limit(1000)
                    .set_write_batch_size(16)
                    .build();
                let mut to = SerializedFileWriter::new(
                    tempfile::tempfile().unwrap(),
                    schema,
                    Arc::new(properties),
                )
                .unwrap();
                let mut group = to.next_row_group().unwrap();
                while let Some(mut column) = group.next_column().unwrap() {
                    let values: Vec<ByteArray> =
                        (0..500).map(|i| ByteArray::from(format!("text {i}").as_str())).collect();
                    let typed = column.typed::<ByteArrayType>();
                    typed.write_batch(&values, Some(&[1; 500]), None).unwrap();
                    column.close().unwrap();
                }
                group.close().unwrap();
                let written = to.into_inner().unwrap();
                check_footer(&written).unwrap();
                let read = SerializedFileReader::new(written.try_clone().unwrap()).unwrap();
                for column in read.metadata().row_group(0).columns() {
                    let (start, length) = column.byte_range();
                    assert_eq!(
                        check_pages(&written, start..start + length, codec),
                        Ok(()),
                        "{codec:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn sizes_that_a_file_only_claims_are_refused() {
        assert_eq!(judged(&page(5, 3, b"abc"), Compression::UNCOMPRESSED), Ok(()));
        for (bytes, expected) in [
            (page(1_500_000_000, 3, b"abc"), "at most"),
            (page(-1, 3, b"abc"), "a negative size"),
            (page(5, -3, b"abc"), "a negative size"),
            (page(5, 4, b"abc"), "after the end of its column"),
            (page(5, 3, b"abc")[..4].to_vec(), "not a complete"),
        ] {
            let message = judged(&bytes, Compression::UNCOMPRESSED).unwrap_err();
            assert!(message.contains(expected), "{expected}: {message}");
        }
        let zeros = vec![0; 1 << 20];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&zeros).unwrap();
        let mut brotli = brotli::CompressorWriter::new(Vec::new(), 1 << 12, 5, 22);
        brotli.write_all(&zeros).unwrap();
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(&zeros).unwrap();
        for (codec, packed) in [
            (Compression::GZIP(GzipLevel::default()), gzip.finish().unwrap()),
            (Compression::BROTLI(BrotliLevel::default()), brotli.into_inner()),
            (Compression::LZ4, lz4.finish().unwrap()),
        ] {
            let length = packed.len() as i64;
            assert_eq!(judged(&page(1 << 20, length, &packed), codec), Ok(()), "{codec:?}");
            // Two bytes of levels before the packed values of a version 2 page.
            let second = |unpacked| {
                let sizes = [&number(unpacked)[..], &[0x15], &number(length + 2)].concat();
                let levels = [&[0x55][..], &number(2), &[0x15], &number(0), &[0x00]].concat();
                [&[0x15, 0x06, 0x15][..], &sizes, &[0x5c], &levels, &[0x00, 0, 0], &packed].concat()
            };
            assert_eq!(judged(&second((1 << 20) + 2), codec), Ok(()), "{codec:?}");
            for bytes in [page(1000, length, &packed), second(1000)] {
                let message = judged(&bytes, codec).unwrap_err();
                assert!(message.contains("more than the 1000 bytes"), "{codec:?}: {message}");
            }
        }
    }

    #[test]
    fn a_footer_with_more_columns_than_it_lists_is_refused() {
        let footer = |children: i64| {
            let schema = [&[0x15, 0x02, 0x19, 0x1c, 0x55], &number(children)[..], &[0x00, 0x00]];
            let schema = schema.concat();
            let length = (schema.len() as u32).to_le_bytes();
            [&schema[..], &length, b"PAR1"].concat()
        };
        assert_eq!(check_footer(&file(&footer(1))), Ok(()));
        for children in [2, i64::from(i32::MAX), -1] {
            assert!(check_footer(&file(&footer(children))).is_err(), "{children}");
        }
        for bytes in [&b"PAR1"[..], b"\xff\xff\xff\x7fPAR1", b"\0\0\0\0PAR1", b"", b"PARE"] {
            assert!(check_footer(&file(bytes)).is_err(), "{bytes:?}");
        }
    }
}
