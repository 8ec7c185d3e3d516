//! Writes samples to a Parquet file, one row each: a list of tokens, and a list of labels, text and answer if the task
//! has them.
//!
//! Memory holds at most one row group, for any number of samples.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use tasks::sample::Tape;

/// A row group is written once it has this many tokens.
const GROUP: usize = 1 << 20;

/// The columns of a task's samples, in addition to tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    pub(super) labels: bool,
    pub(super) text: bool,
    pub(super) answer: bool,
}

/// An open Parquet file.
pub(super) struct Writer<W: Write + Send> {
    columns: Columns,
    file: SerializedFileWriter<W>,
    tokens: Lists,
    labels: Lists,
    texts: Vec<ByteArray>,
    answers: Vec<ByteArray>,
}

/// Lists of numbers in Parquet's form: the numbers, and for each whether it begins a list.
#[derive(Default)]
struct Lists {
    values: Vec<i32>,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
}

impl Lists {
    fn push(&mut self, values: impl Iterator<Item = i32>) {
        let before = self.values.len();
        self.values.extend(values);
        let added = self.values.len() - before;
        // An empty list is one entry without a value.
        self.definitions.resize(self.definitions.len() + added.max(1), i16::from(added > 0));
        let first = self.repetitions.len();
        self.repetitions.resize(first + added.max(1), 1);
        self.repetitions[first] = 0;
    }

    fn clear(&mut self) {
        let Lists { values, definitions, repetitions } = self;
        values.clear();
        definitions.clear();
        repetitions.clear();
    }
}

impl<W: Write + Send> Writer<W> {
    pub(super) fn new(to: W, columns: Columns) -> io::Result<Writer<W>> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("canonc ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let file = schema(columns)
            .and_then(|schema| SerializedFileWriter::new(to, schema, Arc::new(properties)));
        Ok(Writer {
            columns,
            file: file.map_err(io_error)?,
            tokens: Lists::default(),
            labels: Lists::default(),
            texts: Vec::new(),
            answers: Vec::new(),
        })
    }

    pub(super) fn push(&mut self, tape: &Tape) -> io::Result<()> {
        self.tokens.push(tape.tokens.iter().map(|&token| token as i32));
        if self.columns.labels {
            self.labels.push(tape.labels.iter().map(|&label| i32::from(label)));
        }
        if self.columns.text {
            let (text, answer) = tape.text(self.columns.answer);
            self.texts.push(ByteArray::from(text.into_bytes()));
            self.answers.extend(answer.map(|answer| ByteArray::from(answer.into_bytes())));
        }
        if self.tokens.values.len() >= GROUP {
            self.write_group().map_err(io_error)
        } else {
            Ok(())
        }
    }

    /// Bytes in the file so far.
    pub(super) fn written(&self) -> u64 {
        self.file.bytes_written() as u64
    }

    /// Writes the remaining rows and the file's end.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        if !self.tokens.repetitions.is_empty() {
            self.write_group().map_err(io_error)?;
        }
        self.file.finish().map_err(io_error)?;
        Ok(self.written())
    }

    fn write_group(&mut self) -> Result<()> {
        let Writer { columns, file, tokens, labels, texts, answers } = self;
        let mut group = file.next_row_group()?;
        // In the order of the schema.
        for lists in [Some(&mut *tokens), columns.labels.then_some(labels)].into_iter().flatten() {
            if let Some(mut column) = group.next_column()? {
                let Lists { values, definitions, repetitions } = lists;
                column.typed::<Int32Type>().write_batch(
                    values,
                    Some(definitions),
                    Some(repetitions),
                )?;
                column.close()?;
            }
            lists.clear();
        }
        let strings = [columns.text.then_some(texts), columns.answer.then_some(answers)];
        for strings in strings.into_iter().flatten() {
            if let Some(mut column) = group.next_column()? {
                column.typed::<ByteArrayType>().write_batch(strings, None, None)?;
                column.close()?;
            }
            strings.clear();
        }
        group.close()?;
        Ok(())
    }
}

fn schema(Columns { labels, text, answer }: Columns) -> Result<TypePtr> {
    let mut fields = vec![list("tokens", 32)?];
    if labels {
        fields.push(list("labels", 8)?);
    }
    for name in [text.then_some("text"), answer.then_some("answer")].into_iter().flatten() {
        let string = Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(LogicalType::String))
            .with_converted_type(ConvertedType::UTF8);
        fields.push(Arc::new(string.build()?));
    }
    Ok(Arc::new(Type::group_type_builder("sample").with_fields(fields).build()?))
}

/// A list of unsigned integers of this many bits. Neither the list nor its items can be null.
fn list(name: &str, bits: i8) -> Result<TypePtr> {
    let element = Type::primitive_type_builder("element", Physical::INT32)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::integer(bits, false)))
        .build()?;
    let entries = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![Arc::new(element)])
        .build()?;
    let list = Type::group_type_builder(name)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::List))
        .with_converted_type(ConvertedType::LIST)
        .with_fields(vec![Arc::new(entries)])
        .build()?;
    Ok(Arc::new(list))
}

/// The underlying I/O error, if there is one.
fn io_error(error: ParquetError) -> io::Error {
    let ParquetError::External(source) = error else { return io::Error::other(error) };
    match source.downcast::<io::Error>() {
        Ok(error) => *error,
        Err(source) => io::Error::other(source),
    }
}
