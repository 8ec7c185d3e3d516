//! Writes a stream's samples to a file: JSON with one object per line, Parquet, or the binary form that the published
//! vectors' digests cover. Memory does not grow with the number of samples.

mod parquet;

use std::io::{self, Write};

use self::parquet::Columns;
use super::stream::Stream;
use tasks::sample::Tape;
use tasks::task::Definition;

/// Format of a file of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One object per line: `tokens`; `labels` if the task has them. For texts, `text`, and `answer` if the task asks
    /// for one; their concatenated UTF-8 bytes are the tokens.
    Jsonl,
    /// For each sample its number of tokens, then the tokens, as little-endian u32. A text's answer follows a 0.
    Bin,
    /// One row per sample, with the keys of [`Format::Jsonl`] as columns.
    Parquet,
}

/// Counts of samples and bytes written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Samples written.
    pub samples: u64,
    /// Tokens written.
    pub tokens: u64,
    /// Bytes written.
    pub bytes: u64,
}

/// Bytes per write call.
const CHUNK: usize = 1 << 16;

/// Writes the next `count` samples of `stream`. Calls `progress` now and then and at the end with the counts so far. If
/// it returns false, writing stops and leaves a complete file of fewer samples.
pub fn write(
    stream: &mut Stream,
    count: u64,
    format: Format,
    to: &mut (dyn Write + Send),
    progress: impl FnMut(&Written) -> bool,
) -> io::Result<Written> {
    let Definition { labels, is_text: text, is_answered: answer, .. } = *stream.task().definition();
    match format {
        Format::Jsonl => write_chunks(stream, count, to, progress, |chunk, tape| {
            push_json(chunk, tape, labels, text, answer)
        }),
        Format::Bin => {
            write_chunks(stream, count, to, progress, |chunk, tape| push_words(chunk, tape, answer))
        }
        Format::Parquet => {
            write_parquet(stream, count, Columns { labels, text, answer }, to, progress)
        }
    }
}

fn write_chunks(
    stream: &mut Stream,
    count: u64,
    to: &mut dyn Write,
    mut progress: impl FnMut(&Written) -> bool,
    push: impl Fn(&mut Vec<u8>, &Tape),
) -> io::Result<Written> {
    let mut written = Written::default();
    let mut chunk = Vec::with_capacity(2 * CHUNK);
    let mut go_on = true;
    while go_on && written.samples < count {
        let tape = stream.sample();
        push(&mut chunk, tape);
        written.samples += 1;
        written.tokens += tape.tokens.len() as u64;
        if chunk.len() >= CHUNK || written.samples == count {
            written.bytes += chunk.len() as u64;
            to.write_all(&chunk)?;
            chunk.clear();
            go_on = progress(&written);
        }
    }
    to.flush()?;
    Ok(written)
}

fn write_parquet(
    stream: &mut Stream,
    count: u64,
    columns: Columns,
    to: &mut (dyn Write + Send),
    mut progress: impl FnMut(&Written) -> bool,
) -> io::Result<Written> {
    let mut written = Written::default();
    let mut file = parquet::Writer::new(to, columns)?;
    let mut go_on = true;
    while go_on && written.samples < count {
        let tape = stream.sample();
        file.push(tape)?;
        written.samples += 1;
        written.tokens += tape.tokens.len() as u64;
        if written.samples.is_multiple_of(256) {
            written.bytes = file.written();
            go_on = progress(&written);
        }
    }
    written.bytes = file.finish()?;
    progress(&written);
    Ok(written)
}

fn push_json(line: &mut Vec<u8>, tape: &Tape, labels: bool, text: bool, answer: bool) {
    line.push(b'{');
    if text {
        let (text, answer) = tape.text(answer);
        push_string(line, "text", &text);
        if let Some(answer) = answer {
            push_string(line, "answer", &answer);
        }
    }
    push_list(line, "tokens", tape.tokens.iter().copied());
    if labels {
        line.push(b',');
        push_list(line, "labels", tape.labels.iter().map(|&label| u32::from(label)));
    }
    line.extend_from_slice(b"}\n");
}

fn push_string(line: &mut Vec<u8>, name: &str, text: &str) {
    line.extend_from_slice(format!("\"{name}\":").as_bytes());
    line.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
    line.push(b',');
}

fn push_list(line: &mut Vec<u8>, name: &str, numbers: impl Iterator<Item = u32>) {
    line.extend_from_slice(format!("\"{name}\":[").as_bytes());
    for (i, number) in numbers.enumerate() {
        if i > 0 {
            line.push(b',');
        }
        push_number(line, number);
    }
    line.push(b']');
}

/// Appends the number in decimal. Most numbers have few digits.
fn push_number(line: &mut Vec<u8>, number: u32) {
    let mut digits = [b'0'; 10];
    let (mut at, mut left) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    line.extend_from_slice(&digits[at..]);
}

fn push_words(bytes: &mut Vec<u8>, tape: &Tape, is_answered: bool) {
    let end = tape
        .answers
        .first()
        .filter(|_| is_answered)
        .map_or(tape.tokens.len(), |answer| answer.start);
    let (text, answer) = tape.tokens.split_at(end);
    let parting: &[u32] = if is_answered { &[0] } else { &[] };
    let count = (tape.tokens.len() + parting.len()) as u32;
    for word in [count].iter().chain(text).chain(parting).chain(answer) {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings;
    use crate::window::Order;
    use serde_json::{Map, Value, json};
    use support::golden;
    use tasks::DEFINITIONS;
    use tasks::sample::Mode;

    fn stream(name: &str, params: &Value, mode: Option<Mode>, seed: u64) -> Stream {
        let params: Map<String, Value> = params.as_object().unwrap().clone();
        let (task, mode) = settings::task(name, params, mode).unwrap();
        Stream::new(task, Order::Published, mode, seed)
    }

    fn bytes(stream: &mut Stream, count: u64, format: Format) -> Vec<u8> {
        let mut bytes = Vec::new();
        let written = write(stream, count, format, &mut bytes, |_| true).unwrap();
        assert_eq!((written.samples, written.bytes), (count, bytes.len() as u64));
        bytes
    }

    #[test]
    fn binary_files_have_the_vectors_digests() {
        let mut tested = 0;
        let digests = [
            ("depo", "digest_tokens"),
            ("brevo", "digest_tokens"),
            ("mano", "digest_tokens"),
            ("lano", "digest_tokens"),
            ("capo", "digest_utf8"),
            ("multihop", "digest_text_nul_answer_utf8"),
        ];
        assert_eq!(digests.map(|(name, _)| name), DEFINITIONS.map(|task| task.name));
        for (name, digest) in digests {
            let file = golden::read(&format!("playground/{name}"));
            for case in file["cases"].as_array().unwrap() {
                let want = &case[digest];
                if want.is_null() || case["id"].as_str().unwrap().starts_with("bioR") {
                    continue;
                }
                let mut params = case["params"].clone();
                if !file["background"].is_null() {
                    params["background"] = file["background"].clone();
                }
                let mode = (case["mode"] == "qa").then_some(Mode::Test);
                let seed = case["seed"].as_u64().or(case["people_seed"].as_u64()).unwrap();
                let bytes = bytes(&mut stream(name, &params, mode, seed), 200, Format::Bin);
                assert_eq!(golden::sha256(&bytes), want["sha256"], "{}", case["id"]);
                tested += 1;
            }
        }
        assert_eq!(tested, 32 + 24 + 13 + 18 + 10 + 10);
    }

    #[test]
    fn lines_are_objects_of_the_samples() {
        for definition in DEFINITIONS {
            let Definition { name, example, is_text, is_answered, .. } = *definition;
            let params: Value = serde_json::from_str(example).unwrap();
            let lines = bytes(&mut stream(name, &params, None, 1), 50, Format::Jsonl);
            let mut again = stream(name, &params, None, 1);
            let lines: Vec<&str> = std::str::from_utf8(&lines).unwrap().lines().collect();
            assert_eq!(lines.len(), 50);
            for line in lines {
                let object: Map<String, Value> = serde_json::from_str(line).unwrap();
                let tape = again.sample();
                assert_eq!(golden::tokens(&object["tokens"]), tape.tokens);
                let labels: Vec<u32> = tape.labels.iter().map(|&label| u32::from(label)).collect();
                assert_eq!(object.get("labels").map(golden::tokens).unwrap_or_default(), labels);
                let text = |name: &str| object.get(name).map_or("", |text| text.as_str().unwrap());
                let both = text("text").to_owned() + text("answer");
                let keys: Vec<&str> = object.keys().map(String::as_str).collect();
                if is_text {
                    assert!(both.bytes().map(u32::from).eq(tape.tokens.iter().copied()));
                    assert_eq!(text("answer").len(), if is_answered { 4 } else { 0 });
                } else {
                    let wanted: &[&str] =
                        if definition.labels { &["labels", "tokens"] } else { &["tokens"] };
                    assert_eq!(keys, wanted, "{name}");
                }
            }
        }
    }

    #[test]
    fn parquet_files_hold_the_same() {
        use ::parquet::file::reader::{FileReader, SerializedFileReader};

        let depo = json!({"N": 60, "K": 2, "mini_vocab": 50, "min_tlen": 1, "max_tlen": 2});
        let cases = [
            ("depo", depo, 12_000),
            ("lano", json!({"config": "cfg3f"}), 50),
            ("capo", json!({"N": 30}), 50),
            ("multihop", json!({"N": 3, "k": 2}), 50),
            ("mano", json!({"L": 4}), 0),
        ];
        for (name, params, count) in cases {
            let file = bytes(&mut stream(name, &params, None, 1), count, Format::Parquet);
            let lines = bytes(&mut stream(name, &params, None, 1), count, Format::Jsonl);
            let mut on_disk = tempfile::tempfile().unwrap();
            on_disk.write_all(&file).unwrap();
            let reader = SerializedFileReader::new(on_disk).unwrap();
            assert_eq!(reader.metadata().file_metadata().num_rows(), count as i64);
            // More tokens than fit in a row group.
            assert_eq!(
                reader.num_row_groups(),
                match count {
                    12_000 => 2,
                    50 => 1,
                    _ => 0,
                }
            );
            let rows = reader.get_row_iter(None).unwrap();
            let lines = std::str::from_utf8(&lines).unwrap().lines();
            let mut same = 0;
            for (row, line) in rows.zip(lines) {
                let want: Value = serde_json::from_str(line).unwrap();
                assert_eq!(row.unwrap().to_json_value(), want);
                same += 1;
            }
            assert_eq!(same, count, "{name}");
        }
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 99, 100, 9999, 16_777_216, u32::MAX] {
            let mut line = Vec::new();
            push_number(&mut line, number);
            assert_eq!(String::from_utf8(line).unwrap(), number.to_string());
        }
    }

    #[test]
    fn writing_stops_when_asked_or_when_it_cannot_go_on() {
        let params = json!({"config": "cfg3f"});
        let mut calls = 0;
        let mut out = Vec::new();
        let written = write(
            &mut stream("lano", &params, None, 1),
            u64::MAX,
            Format::Jsonl,
            &mut out,
            |written| {
                calls += 1;
                assert!(written.samples > 0);
                calls < 3
            },
        )
        .unwrap();
        assert_eq!((written.bytes, calls), (out.len() as u64, 3));
        assert!(out.ends_with(b"\n"));

        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for format in [Format::Jsonl, Format::Bin, Format::Parquet] {
            let error =
                write(&mut stream("lano", &params, None, 1), 1, format, &mut Full, |_| true)
                    .unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        }
        assert_eq!(bytes(&mut stream("lano", &params, None, 1), 0, Format::Jsonl), b"");
    }
}
