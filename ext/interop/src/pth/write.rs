//! Writes a `.pth` file that stock `torch.load(weights_only=True)` reads: a zip archive in the layout of `torch.save`.
//!
//! Data begins at multiples of 64 bytes; memory is bounded by a piece.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write};
use std::path::Path;

use dsl::Problem;

use crate::cannot_write;
use crate::dtype::Dtype;
use crate::store::{Planned, count};

/// The folder in the archive, named after the usual file name.
const FOLDER: &str = "consolidated";
const ALIGNMENT: u64 = 64;

struct WrittenEntry {
    name: String,
    header: u64,
    size: u64,
    crc: u32,
}

/// A local header; large sizes are in an extra field.
fn local(name: &str, size: u64, crc: u32, padding: usize) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(0x0403_4b50u32.to_le_bytes());
    // Version 4.5, for large sizes; UTF-8; stored; no time.
    for field in [45u16, 0x0800, 0, 0, 0] {
        out.extend(field.to_le_bytes());
    }
    out.extend(crc.to_le_bytes());
    out.extend([0xff; 8]);
    out.extend((name.len() as u16).to_le_bytes());
    out.extend((20 + padding as u16).to_le_bytes());
    out.extend(name.as_bytes());
    out.extend([1, 0, 16, 0]);
    out.extend(size.to_le_bytes());
    out.extend(size.to_le_bytes());
    // Padding goes into an extra field that PyTorch calls FB.
    if padding > 0 {
        out.extend(b"FB");
        out.extend((padding as u16 - 4).to_le_bytes());
        out.extend(vec![b'Z'; padding - 4]);
    }
    out
}

/// The padding that makes an entry's content begin at a multiple of 64.
fn padding(at: u64, name: &str) -> usize {
    let begin = at + 30 + name.len() as u64 + 20;
    match (begin.next_multiple_of(ALIGNMENT) - begin) as usize {
        0 => 0,
        // A field has at least four bytes.
        n @ 1..=3 => n + ALIGNMENT as usize,
        n => n,
    }
}

/// Writes `{"model": {name: tensor}}`.
pub fn write(
    path: &Path,
    tensors: &[Planned],
    dtype: Dtype,
    mut fill: impl FnMut(usize, &mut dyn FnMut(&[f32]) -> Result<(), Problem>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let failed = |error: std::io::Error| cannot_write(path, &error);
    let mut file = File::create_new(path).map_err(failed)?;
    let mut entries = Vec::new();
    let mut at = 0;
    let small: [(&str, Vec<u8>); 3] = [
        ("data.pkl", pickle(tensors, dtype)),
        ("byteorder", b"little".to_vec()),
        ("version", b"3\n".to_vec()),
    ];
    for (name, bytes) in small {
        let name = format!("{FOLDER}/{name}");
        let (size, crc) = (bytes.len() as u64, crc32fast::hash(&bytes));
        let header = local(&name, size, crc, padding(at, &name));
        file.write_all(&header).and_then(|()| file.write_all(&bytes)).map_err(failed)?;
        entries.push(WrittenEntry { name, header: at, size, crc });
        at += header.len() as u64 + size;
    }
    let mut buffer = Vec::new();
    for (index, planned) in tensors.iter().enumerate() {
        let name = format!("{FOLDER}/data/{index}");
        let size = count(&planned.shape).unwrap_or(0) * dtype.bytes();
        let padding = padding(at, &name);
        // The checksum is known only after the values are written; then the header is overwritten.
        let header = local(&name, size, 0, padding);
        file.write_all(&header).map_err(failed)?;
        let mut hash = crc32fast::Hasher::new();
        fill(index, &mut |values| {
            buffer.clear();
            dtype.encode(values, &mut buffer);
            hash.update(&buffer);
            file.write_all(&buffer).map_err(failed)
        })?;
        let crc = hash.finalize();
        let end = at + header.len() as u64 + size;
        file.seek(SeekFrom::Start(at)).map_err(failed)?;
        file.write_all(&local(&name, size, crc, padding)).map_err(failed)?;
        file.seek(SeekFrom::Start(end)).map_err(failed)?;
        entries.push(WrittenEntry { name, header: at, size, crc });
        at = end;
    }
    file.write_all(&directory(&entries, at)).map_err(failed)?;
    file.sync_all().map_err(failed)
}

/// The central directory and both end records.
fn directory(entries: &[WrittenEntry], at: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for WrittenEntry { name, header, size, crc } in entries {
        out.extend(0x0201_4b50u32.to_le_bytes());
        for field in [45u16, 45, 0x0800, 0, 0, 0] {
            out.extend(field.to_le_bytes());
        }
        out.extend(crc.to_le_bytes());
        out.extend([0xff; 8]);
        out.extend((name.len() as u16).to_le_bytes());
        out.extend(28u16.to_le_bytes());
        out.extend([0; 10]);
        out.extend([0xff; 4]);
        out.extend(name.as_bytes());
        out.extend([1, 0, 24, 0]);
        for field in [size, size, header] {
            out.extend(field.to_le_bytes());
        }
    }
    let (size, count) = (out.len() as u64, entries.len() as u64);
    out.extend(0x0606_4b50u32.to_le_bytes());
    out.extend(44u64.to_le_bytes());
    out.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for field in [count, count, size, at] {
        out.extend(field.to_le_bytes());
    }
    out.extend(0x0706_4b50u32.to_le_bytes());
    out.extend(0u32.to_le_bytes());
    out.extend((at + size).to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend(0x0605_4b50u32.to_le_bytes());
    out.extend([0; 4]);
    let short = u16::try_from(count).unwrap_or(u16::MAX);
    out.extend(short.to_le_bytes());
    out.extend(short.to_le_bytes());
    out.extend(u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(u32::try_from(at).unwrap_or(u32::MAX).to_le_bytes());
    out.extend([0; 2]);
    out
}

/// The pickle of the map, protocol 2, without a memo.
fn pickle(tensors: &[Planned], dtype: Dtype) -> Vec<u8> {
    let mut out = vec![0x80, 2, b'}'];
    text(&mut out, "model");
    out.push(b'}');
    for (index, Planned { name, shape }) in tensors.iter().enumerate() {
        text(&mut out, name);
        out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        text(&mut out, "storage");
        out.extend(b"ctorch\n");
        out.extend(match dtype {
            Dtype::F32 => b"FloatStorage\n".as_slice(),
            Dtype::Bf16 => b"BFloat16Storage\n",
            Dtype::F16 => b"HalfStorage\n",
        });
        text(&mut out, &index.to_string());
        text(&mut out, "cpu");
        int(&mut out, count(shape).unwrap_or(0) as i64);
        out.extend(b"tQ");
        int(&mut out, 0);
        tuple(&mut out, shape);
        let mut strides = Vec::new();
        let mut step = 1;
        for extent in shape.iter().rev() {
            strides.push(step);
            step *= (*extent).max(1);
        }
        strides.reverse();
        tuple(&mut out, &strides);
        // No gradient, no hooks.
        out.extend(b"\x89ccollections\nOrderedDict\n)RtRs");
    }
    out.extend(b"s.");
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'X');
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

fn int(out: &mut Vec<u8>, n: i64) {
    match i32::try_from(n) {
        Ok(n) => {
            out.push(b'J');
            out.extend(n.to_le_bytes());
        }
        Err(_) => {
            out.extend([0x8a, 8]);
            out.extend(n.to_le_bytes());
        }
    }
}

fn tuple(out: &mut Vec<u8>, items: &[i64]) {
    out.push(b'(');
    items.iter().for_each(|n| int(out, *n));
    out.push(b't');
}
