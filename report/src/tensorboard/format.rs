//! The format of event files: TFRecords of Event messages. A record is its length, a masked CRC-32C of that, the message, and
//! a masked CRC-32C of that; reading stops at the first record that is torn or damaged.
//!
//! The few fields of `tensorboard/compat/proto/event.proto` and `summary.proto` that scalars need are written and read
//! by number; a code generator would be larger than this file.

use crc::{CRC_32_ISCSI, Crc};

/// Castagnoli's polynomial, as in TFRecords.
const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
const VERSION: &str = "brain.Event:2";
/// Ends before the id of the run's lock, in the name of the writer.
const WRITER: &str = "canonc, lock ";

/// One event: the values after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Seconds since 1970.
    pub wall_time: f64,
    /// The number of the step.
    pub step: u64,
    /// Values by tag.
    pub values: Vec<(String, f32)>,
}

/// The complete records at the beginning of an event file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// The lock in the first record, if canonc wrote it there.
    pub lock: Option<String>,
    /// The events with values.
    pub events: Vec<Event>,
    /// The number of bytes of all these records; what follows is torn or damaged.
    pub complete: usize,
}

/// The first record of a file.
pub fn first(wall_time: f64, lock: &str) -> Vec<u8> {
    let mut event = double(1, wall_time);
    event.extend(bytes(3, VERSION.as_bytes()));
    // Event.source_metadata.writer
    event.extend(bytes(10, &bytes(1, format!("{WRITER}{lock}").as_bytes())));
    record(&event)
}

impl Event {
    /// The event as a record.
    pub fn record(&self) -> Vec<u8> {
        let mut summary = Vec::new();
        for (tag, value) in &self.values {
            let mut scalar = bytes(1, tag.as_bytes());
            // Key 2, four bytes.
            scalar.push(2 << 3 | 5);
            scalar.extend(value.to_le_bytes());
            summary.extend(bytes(1, &scalar));
        }
        let mut event = double(1, self.wall_time);
        event.push(2 << 3);
        event.extend(varint(self.step));
        event.extend(bytes(5, &summary));
        record(&event)
    }

    /// Whether this event has these values at this step. It may have more, such as a speed.
    pub fn has(&self, step: u64, values: &[(String, f32)]) -> bool {
        let holds = |(tag, value): &(String, f32)| {
            self.values.iter().any(|(t, v)| t == tag && v.to_bits() == value.to_bits())
        };
        self.step == step && values.iter().all(holds)
    }
}

/// Reads the complete records of a file.
pub fn read(file: &[u8]) -> Records {
    let mut events = Vec::new();
    let (lock, complete) = each(file, |event| events.push(event));
    Records { lock, events, complete }
}

/// Passes the event of each complete record to `take`. Returns what else [`Records`] has: the lock, and the number of bytes.
pub fn each(file: &[u8], mut take: impl FnMut(Event)) -> (Option<String>, usize) {
    let (mut lock, mut complete) = (None, 0);
    while let Some((message, length)) = file.get(complete..).and_then(next) {
        match parse(message) {
            Some(Parsed::First(named)) => lock = lock.or(named),
            Some(Parsed::Event(event)) => take(event),
            None => break,
        }
        complete += length;
    }
    (lock, complete)
}

/// The first message, if its record is complete and its checksums are right, and the length of the record.
fn next(file: &[u8]) -> Option<(&[u8], usize)> {
    let (length, rest) = file.split_first_chunk::<8>()?;
    let (check, rest) = rest.split_first_chunk::<4>()?;
    if masked(length) != u32::from_le_bytes(*check) {
        return None;
    }
    let (message, rest) =
        rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let (check, _) = rest.split_first_chunk::<4>()?;
    (masked(message) == u32::from_le_bytes(*check)).then_some((message, 16 + message.len()))
}

enum Parsed {
    First(Option<String>),
    Event(Event),
}

fn parse(message: &[u8]) -> Option<Parsed> {
    let mut event = Event { wall_time: 0.0, step: 0, values: Vec::new() };
    let mut first = None;
    for (key, field) in fields(message)? {
        match (key, field) {
            (1, Field::Eight(bits)) => event.wall_time = f64::from_bits(bits),
            (2, Field::Varint(step)) => event.step = step,
            (3, Field::Bytes(_)) => first = first.or(Some(None)),
            (5, Field::Bytes(summary)) => {
                for (key, value) in fields(summary)? {
                    let (1, Field::Bytes(value)) = (key, value) else { continue };
                    event.values.extend(scalar(value)?);
                }
            }
            (10, Field::Bytes(source)) => {
                let writer = fields(source)?.into_iter().find_map(|(key, field)| match field {
                    Field::Bytes(writer) if key == 1 => std::str::from_utf8(writer).ok(),
                    Field::Bytes(_) | Field::Varint(_) | Field::Four(_) | Field::Eight(_) => None,
                });
                first = Some(writer.and_then(|text| text.strip_prefix(WRITER)).map(str::to_owned));
            }
            (_, _) => {}
        }
    }
    Some(first.map_or(Parsed::Event(event), Parsed::First))
}

/// A scalar of a summary; `None` inside if it is a value of another kind.
fn scalar(value: &[u8]) -> Option<Option<(String, f32)>> {
    let (mut tag, mut number) = (None, None);
    for (key, field) in fields(value)? {
        match (key, field) {
            (1, Field::Bytes(text)) => tag = Some(std::str::from_utf8(text).ok()?.to_owned()),
            (2, Field::Four(bits)) => number = Some(f32::from_bits(bits)),
            (_, _) => {}
        }
    }
    Some(tag.zip(number))
}

enum Field<'a> {
    Varint(u64),
    Four(u32),
    Eight(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, by key.
fn fields(mut message: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = read_varint(&mut message)?;
        let field = match key & 7 {
            0 => Field::Varint(read_varint(&mut message)?),
            1 => {
                let (bytes, rest) = message.split_first_chunk::<8>()?;
                message = rest;
                Field::Eight(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = usize::try_from(read_varint(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                Field::Bytes(bytes)
            }
            5 => {
                let (bytes, rest) = message.split_first_chunk::<4>()?;
                message = rest;
                Field::Four(u32::from_le_bytes(*bytes))
            }
            _ => return None,
        };
        fields.push((key >> 3, field));
    }
    Some(fields)
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut bytes = length.to_vec();
    bytes.extend(masked(&length).to_le_bytes());
    bytes.extend(data);
    bytes.extend(masked(data).to_le_bytes());
    bytes
}

/// The masked checksum of TFRecords: a plain checksum of bytes that contain checksums is weak.
fn masked(data: &[u8]) -> u32 {
    CRC.checksum(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn double(key: u8, value: f64) -> Vec<u8> {
    let mut out = vec![key << 3 | 1];
    out.extend(value.to_le_bytes());
    out
}

fn bytes(key: u8, data: &[u8]) -> Vec<u8> {
    let mut out = vec![key << 3 | 2];
    out.extend(varint(data.len() as u64));
    out.extend(data);
    out
}

/// Seven bits per byte, lowest first.
fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn read_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(step: u64, values: &[(&str, f32)]) -> Event {
        let values = values.iter().map(|(tag, value)| ((*tag).to_owned(), *value)).collect();
        Event { wall_time: 2.25, step, values }
    }

    #[test]
    fn checksums_are_castagnoli_s_as_rfc_3720_gives_them() {
        assert_eq!(CRC.checksum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(CRC.checksum(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(CRC.checksum(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn records_are_byte_for_byte_what_tensorboard_writes() {
        // Written by `tensorboard.summary.writer.record_writer.RecordWriter` of TensorBoard 2 for
        // Event(wall_time=1.5, file_version="brain.Event:2") and a scalar after step 300.
        let first =
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c";
        let second = "2d000000000000003c418afb09000000000000024010ac022a1f0a1d0a16\
                      747261696e696e672f747261696e696e675f6c6f7373150000c03f1f7e8e3e";
        let version = record(&[double(1, 1.5), bytes(3, VERSION.as_bytes())].concat());
        let loss = event(300, &[("training/training_loss", 1.5)]).record();
        let hex = |file: &[u8]| file.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!((hex(&version).as_str(), hex(&loss).as_str()), (first, second));
        let file = [version, loss].concat();
        let read = read(&file);
        assert_eq!(read.events, [event(300, &[("training/training_loss", 1.5)])]);
        assert_eq!((read.lock, read.complete), (None, file.len()));
    }

    #[test]
    fn varints_have_their_bytes() {
        assert_eq!(varint(0), [0]);
        assert_eq!(varint(127), [127]);
        assert_eq!(varint(300), [0xac, 0x02]);
        assert_eq!(varint(u64::MAX).len(), 10);
    }

    #[test]
    fn a_torn_or_damaged_record_ends_what_is_read() {
        let events = [event(1, &[("a", 1.0), ("b", f32::NAN)]), event(2, &[("a", 0.5)])];
        let start = first(1.0, "abc");
        let one = [start.clone(), events[0].record()].concat();
        let file = [one.clone(), events[1].record()].concat();
        for end in start.len()..=file.len() {
            let records = read(&file[..end]);
            assert_eq!(records.lock.as_deref(), Some("abc"));
            let complete = if end == file.len() {
                end
            } else {
                one.len().min(if end < one.len() { start.len() } else { end })
            };
            assert_eq!(records.complete, complete, "{end}");
        }
        for at in one.len()..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert_eq!(read(&damaged).complete, one.len(), "{at}");
        }
        let records = read(&file);
        assert!(records.events[0].has(1, &[("b".to_owned(), f32::NAN)]));
        assert!(
            !records.events[0].has(2, &[]) && !records.events[1].has(2, &[("a".to_owned(), 1.0)])
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (read(&bytes), parse(&bytes).is_some(), read(&record(&bytes)));
        }

        #[test]
        fn events_are_read_back(step: u64, wall in 0.0..1e10, values in proptest::collection::vec(("[a-z/_]{1,20}", -1e30f32..1e30), 0..5)) {
            let event = Event { wall_time: wall, step, values };
            prop_assert_eq!(read(&event.record()).events, [event]);
        }
    }
}
