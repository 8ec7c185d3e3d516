//! Writes a run's curves as an event file for TensorBoard.
//!
//! In: a finished run. Out: bytes: TFRecords (length, masked CRC-32C of it, bytes, masked CRC-32C of them) of Event
//! messages. The first one names the format; the others give a scalar per curve for each step and evaluation. Must
//! stay true: steps ascend; wall times are the run's start plus elapsed seconds, so that equal runs give equal bytes;
//! NaN is written as NaN, never left out.
//!
//! The few fields of `tensorflow/core/util/event.proto` and `framework/summary.proto` that scalars need are written by
//! number; a code generator would be larger than this file.

use std::collections::BTreeMap;

use crc::{CRC_32_ISCSI, Crc};

use crate::compare::TRAINING_LOSS;
use crate::page::Run;

/// Castagnoli's polynomial, as in TFRecords.
const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
const VERSION: &str = "brain.Event:2";

/// The file name for a run.
pub fn file_name(run: &Run) -> String {
    format!("events.out.tfevents.{:010}.canonc", start(run) as u64)
}

fn start(run: &Run) -> f64 {
    run.logged.started.unwrap_or(0.0)
}

/// The bytes of the event file.
pub fn events(run: &Run) -> Vec<u8> {
    let logged = &run.logged;
    let mut scalars: BTreeMap<u64, Vec<(String, f64)>> = BTreeMap::new();
    let series = [
        (TRAINING_LOSS, &logged.curves.loss),
        ("gradient norm", &logged.grad_norm),
        ("learning rate", &logged.lr),
    ];
    let measures = logged.curves.metrics.iter().map(|(name, points)| (name.as_str(), points));
    for (name, points) in series.into_iter().chain(measures) {
        for (step, value) in points {
            scalars.entry(*step).or_default().push((tag(name), *value));
        }
    }
    let seconds: BTreeMap<u64, f64> = logged.seconds.iter().flatten().copied().collect();
    let mut file = record(&version(start(run)));
    for (step, values) in &scalars {
        let now = start(run) + seconds.range(..=step).next_back().map_or(0.0, |(_, s)| *s);
        file.extend(record(&event(now, *step, values)));
    }
    file
}

/// `train/loss`: TensorBoard groups by the part before the first `/` and does not handle blanks well.
fn tag(name: &str) -> String {
    let group = match name {
        TRAINING_LOSS | "gradient norm" | "learning rate" => "training",
        _ => "evaluation",
    };
    let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    // The overlap with training is not counted here, so no loss is called held-out.
    format!("{group}/{}", name.chars().map(plain).collect::<String>())
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

fn version(wall_time: f64) -> Vec<u8> {
    let mut event = double(1, wall_time);
    event.extend(bytes(3, VERSION.as_bytes()));
    event
}

fn event(wall_time: f64, step: u64, values: &[(String, f64)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, value) in values {
        let mut scalar = bytes(1, tag.as_bytes());
        // Key 2, four bytes.
        scalar.push(2 << 3 | 5);
        scalar.extend((*value as f32).to_le_bytes());
        summary.extend(bytes(1, &scalar));
    }
    let mut event = double(1, wall_time);
    event.push(2 << 3);
    event.extend(varint(step));
    event.extend(bytes(5, &summary));
    event
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The bodies of all records, after checking each checksum.
    fn records(mut file: &[u8]) -> Vec<&[u8]> {
        let mut found = Vec::new();
        while !file.is_empty() {
            let (length, rest) = file.split_at(8);
            let (check, rest) = rest.split_at(4);
            assert_eq!(masked(length).to_le_bytes(), check);
            let (data, rest) =
                rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
            let (check, rest) = rest.split_at(4);
            assert_eq!(masked(data).to_le_bytes(), check);
            found.push(data);
            file = rest;
        }
        found
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
        let loss = [("training/training_loss".to_owned(), 1.5)];
        let [a, b] = [version(1.5), event(2.25, 300, &loss)].map(|message| record(&message));
        let hex = |file: &[u8]| file.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!((hex(&a).as_str(), hex(&b).as_str()), (first, second));
        assert_eq!(records(&[a, b].concat()).len(), 2);
    }

    #[test]
    fn numbers_have_their_bytes() {
        assert_eq!(varint(0), [0]);
        assert_eq!(varint(127), [127]);
        assert_eq!(varint(300), [0xac, 0x02]);
        assert_eq!(varint(u64::MAX).len(), 10);
        let event = event(0.0, 300, &[("a".to_owned(), 1.0)]);
        let wanted = [9, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0xac, 2, 42, 10, 10, 8, 10, 1, b'a', 21];
        assert_eq!(event[..20], wanted);
        assert_eq!(event[20..], 1.0_f32.to_le_bytes());
    }

    #[test]
    fn tags_are_groups_and_plain_words() {
        assert_eq!(tag(TRAINING_LOSS), "training/training_loss");
        assert_eq!(tag("exact_match, level 2"), "evaluation/exact_match__level_2");
    }
}
