//! Reads the column of a Parquet file that holds documents, from any row on.
//!
//! A column that does not hold strings is refused, never converted. A row without a value is returned as such. Rows are
//! read in small batches, so a row group is never held whole.

use std::collections::VecDeque;
use std::fs::File;

use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::super::lines::Field;
use super::pages::{check_footer, check_pages};

/// Rows per read.
const ROWS: usize = 64;

/// A column being read.
pub(super) struct Table {
    file: SerializedFileReader<File>,
    /// The same file, used to check sizes before the library allocates memory for them.
    raw: File,
    column: usize,
    /// Definition level of a present value.
    present: i16,
    group: usize,
    reader: Option<ColumnReaderImpl<ByteArrayType>>,
    /// Rows left in the group.
    left: u64,
    /// Compressed bytes of the earlier groups.
    read: u64,
    /// Rows read and not yet returned. Equal values share memory here.
    ready: VecDeque<Option<ByteArray>>,
}

impl Table {
    pub(super) fn open(file: File, field: &Field, rows: u64) -> Result<Table, String> {
        check_footer(&file)?;
        let raw = file.try_clone().map_err(|error| error.to_string())?;
        let file = SerializedFileReader::new(file).map_err(|error| error.to_string())?;
        let schema = file.metadata().file_metadata().schema_descr();
        let columns = schema.columns();
        let named = |name: &str| columns.iter().position(|column| column.path().string() == name);
        let position = match field {
            Field::Usual => field.names().iter().find_map(|name| named(name)),
            Field::Named(name) => named(name),
        };
        let Some(column) = position else {
            let names: Vec<String> =
                columns.iter().take(20).map(|column| column.path().string()).collect();
            return Err(format!("it has no column {field}; it has {}", names.join(", ")));
        };
        let descriptor = columns.get(column).ok_or("its columns are not listed")?;
        is_text(descriptor)?;
        let present = descriptor.max_def_level();
        let mut table = Table {
            file,
            raw,
            column,
            present,
            group: 0,
            reader: None,
            left: 0,
            read: 0,
            ready: VecDeque::new(),
        };
        table.skip(rows)?;
        Ok(table)
    }

    fn skip(&mut self, mut rows: u64) -> Result<(), String> {
        while rows > 0 {
            if self.left == 0 && !self.next_group()? {
                return Err("it is shorter than before".to_owned());
            }
            let count = rows.min(self.left);
            match (&mut self.reader, count == self.left) {
                // Skip a whole group without reading it.
                (reader, true) => *reader = None,
                (Some(reader), false) => {
                    reader.skip_records(count as usize).map_err(|error| error.to_string())?;
                }
                (None, false) => return Err("a group of rows cannot be read".to_owned()),
            }
            self.left -= count;
            rows -= count;
        }
        Ok(())
    }

    /// Opens the next group that has rows.
    fn next_group(&mut self) -> Result<bool, String> {
        let text = |error: parquet::errors::ParquetError| error.to_string();
        while self.group < self.file.num_row_groups() {
            let group = self.file.get_row_group(self.group).map_err(text)?;
            let metadata = group.metadata();
            self.left = u64::try_from(metadata.num_rows())
                .map_err(|_| "a group has a negative number of rows")?;
            self.read = self.read.saturating_add(metadata.compressed_size().unsigned_abs());
            self.group += 1;
            if self.left > 0 {
                let column =
                    metadata.columns().get(self.column).ok_or("a group lacks its column")?;
                let (start, length) = column.byte_range();
                let pages = start..start.saturating_add(length);
                check_pages(&self.raw, pages, column.compression())?;
                let reader = group.get_column_reader(self.column).map_err(text)?;
                let ColumnReader::ByteArrayColumnReader(_) = &reader else {
                    return Err("a group's column is of another type than the file's".to_owned());
                };
                self.reader = Some(get_typed_column_reader(reader));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next rows, until they hold `size` bytes; none at the end.
    pub(super) fn next(&mut self, size: usize) -> Result<Vec<Option<Vec<u8>>>, String> {
        let mut rows = Vec::new();
        let mut bytes = 0;
        while bytes < size {
            if let Some(value) = self.ready.pop_front() {
                bytes += value.as_ref().map_or(0, ByteArray::len) + 1;
                rows.push(value.map(|value| value.data().to_vec()));
                continue;
            }
            if self.left == 0 && !self.next_group()? {
                break;
            }
            let Some(reader) = &mut self.reader else { break };
            let wanted = self.left.min(ROWS as u64) as usize;
            let (mut levels, mut values): (Vec<i16>, Vec<ByteArray>) = (Vec::new(), Vec::new());
            let definitions = (self.present > 0).then_some(&mut levels);
            let (count, _, _) = reader
                .read_records(wanted, definitions, None, &mut values)
                .map_err(|error| error.to_string())?;
            if count == 0 {
                return Err(format!("a group ends {} rows too early", self.left));
            }
            let mut values = values.into_iter();
            for row in 0..count {
                let there = self.present == 0 || levels.get(row) == Some(&self.present);
                let value = if there { values.next() } else { None };
                self.ready.push_back(value);
            }
            self.left -= count as u64;
        }
        Ok(rows)
    }

    /// Bytes of the file already read, by the sizes that the groups state.
    pub(super) fn read(&self) -> u64 {
        self.read
    }
}

fn is_text(column: &ColumnDescriptor) -> Result<(), String> {
    let name = column.path().string();
    let physical = column.physical_type();
    if column.max_rep_level() > 0 {
        return Err(format!("its column `{name}` is a list, but a document is one string"));
    }
    let plain = match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::String), _) => true,
        (Some(_), _) => false,
        (None, ConvertedType::UTF8 | ConvertedType::NONE) => true,
        (None, _) => false,
    };
    if physical != Physical::BYTE_ARRAY || !plain {
        return Err(format!("its column `{name}` is {physical}, but documents are strings"));
    }
    Ok(())
}
