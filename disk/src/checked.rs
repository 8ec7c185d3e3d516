//! Reads a file larger than memory, and checks every byte against digests of its blocks.
//!
//! Every read returns bytes from memory of this process only, after checking a digest of that very memory, so bytes that
//! change meanwhile are detected or never used. A file that shrinks is an error with its position, never a short read, and a
//! file is never mapped into memory.
//!
//! The first read of a block takes its BLAKE3 digest, and keeps a fingerprint of each 2 KiB of it in memory. A later read
//! computes the fingerprints of the pieces that it touches. This is several times as fast as a digest, and as safe, since
//! they are keyed with random numbers that never leave this process.

use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::ops::Range;
use std::sync::OnceLock;

/// Bytes per digest in a file's list.
pub const BLOCK: u64 = 1 << 18;
/// Bytes per fingerprint. Smaller pieces cost more memory, larger ones more time.
const PIECE: usize = 1 << 11;

/// Random numbers that key the fingerprints.
///
/// A fingerprint is NH, of UMAC and VMAC (Black et al. 1999): with the piece's 64-bit words m and random words k, the
/// sum of (m[2i] + k[2i]) * (m[2i+1] + k[2i+1]), the additions modulo 2^64 and the sum modulo 2^128. Two different
/// pieces of one length have the same fingerprint under at most one key in 2^64. So any write to the file is detected,
/// since nobody outside this process knows the key.
#[derive(Debug)]
struct Key(Box<[[u64; 2]]>);

impl Key {
    fn random() -> Key {
        let mut hasher = blake3::Hasher::new_derive_key("canonc fingerprints of pieces");
        for number in 0..4u8 {
            // The standard library seeds each from the system's random numbers.
            hasher.update(&RandomState::new().hash_one(number).to_le_bytes());
        }
        let mut words = hasher.finalize_xof();
        let mut word = || {
            let mut bytes = [0; 8];
            words.fill(&mut bytes);
            u64::from_le_bytes(bytes)
        };
        Key((0..PIECE / 16).map(|_| [word(), word()]).collect())
    }

    fn fingerprint(&self, piece: &[u8]) -> u128 {
        let product = |words: &[u8; 16], [first, second]: &[u64; 2]| {
            let words = u128::from_le_bytes(*words);
            let (low, high) = (words as u64, (words >> 64) as u64);
            u128::from(low.wrapping_add(*first)) * u128::from(high.wrapping_add(*second))
        };
        let (chunks, rest) = piece.as_chunks::<16>();
        let mut sum = 0u128;
        for (words, key) in chunks.iter().zip(&self.0) {
            sum = sum.wrapping_add(product(words, key));
        }
        if let Some(key) = self.0.get(chunks.len()).filter(|_| !rest.is_empty()) {
            // A piece's position determines its length, so zero padding cannot make two pieces equal.
            let mut last = [0; 16];
            for (to, from) in last.iter_mut().zip(rest) {
                *to = *from;
            }
            sum = sum.wrapping_add(product(&last, key));
        }
        sum
    }
}

/// A file with the digests of its blocks.
#[derive(Debug)]
pub struct CheckedFile {
    file: File,
    /// Bytes covered by the digests, from the start of the file.
    covered: u64,
    digests: Vec<blake3::Hash>,
    key: Key,
    /// Fingerprints of the pieces of each block read before.
    fingerprints: Vec<OnceLock<Box<[u128]>>>,
}

/// The reason why a read failed.
#[derive(Debug)]
pub enum ReadFault {
    /// The bytes differ from those that the digests cover.
    Changed {
        /// Position of the changed block in the file, in bytes.
        block: Range<u64>,
        /// Whether this process read the block before, and its bytes were correct then.
        read_before: bool,
    },
    /// The file ends before the range.
    Cut {
        /// Position of the first missing block, in bytes.
        block: Range<u64>,
    },
    /// No digest covers the range.
    Outside {
        /// The range that was asked for, in bytes.
        range: Range<u64>,
        /// Number of bytes that the digests cover, from the start of the file.
        covered: u64,
    },
    /// The system could not read the file.
    Io {
        /// Position of the first block to read, in bytes.
        block: Range<u64>,
        /// The system's error.
        error: io::Error,
    },
}

impl fmt::Display for ReadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |block: &Range<u64>| {
            let Range { start, end } = block;
            format!("bytes {start} to {end} (block {})", start / BLOCK)
        };
        match self {
            ReadFault::Changed { block, read_before: false } => {
                write!(f, "{} differ from the bytes that were written", named(block))
            }
            ReadFault::Changed { block, read_before: true } => {
                write!(f, "{} have changed since this process first read them", named(block))
            }
            ReadFault::Cut { block } => {
                write!(f, "it ends before {}: it became shorter", named(block))
            }
            ReadFault::Outside { range, covered } => {
                write!(f, "bytes {} to {} are outside of its {covered}", range.start, range.end)
            }
            ReadFault::Io { block, error } => write!(f, "{} cannot be read: {error}", named(block)),
        }
    }
}

/// Memory reused between reads.
#[derive(Clone, Debug, Default)]
pub struct ReadBuffer {
    bytes: Vec<u8>,
}

impl CheckedFile {
    /// A file with one BLAKE3 digest for each [`BLOCK`] of its first `covered` bytes. Reads nothing yet.
    pub fn new(file: File, covered: u64, digests: Vec<blake3::Hash>) -> CheckedFile {
        let fingerprints = digests.iter().map(|_| OnceLock::new()).collect();
        CheckedFile { file, covered, digests, key: Key::random(), fingerprints }
    }

    /// A file without a list of digests. Reads it once; later reads must return the same bytes. Also returns the digest
    /// of all of them.
    pub fn first_read(file: File) -> io::Result<(CheckedFile, blake3::Hash)> {
        let covered = file.metadata()?.len();
        let (mut digests, mut hasher) = (Vec::new(), blake3::Hasher::new());
        let mut bytes = vec![0; covered.min(BLOCK) as usize];
        let mut at = 0;
        while at < covered {
            let block = bytes.get_mut(..(covered - at).min(BLOCK) as usize).unwrap_or_default();
            read_at(&file, block, at)?;
            digests.push(blake3::hash(block));
            hasher.update(block);
            at += BLOCK;
        }
        Ok((CheckedFile::new(file, covered, digests), hasher.finalize()))
    }

    /// Number of bytes that the digests cover, from the start of the file.
    pub fn covered(&self) -> u64 {
        self.covered
    }

    /// Bytes in memory to check what is read: the list of digests, and the fingerprints of the blocks that were read.
    pub fn memory(&self) -> u64 {
        let listed = size_of_val(self.digests.as_slice())
            + size_of_val(self.fingerprints.as_slice())
            + size_of_val(&*self.key.0);
        let read = self.fingerprints.iter().filter_map(OnceLock::get);
        (listed + read.map(|kept| size_of_val(&**kept)).sum::<usize>()) as u64
    }

    /// Positions of the blocks with digests, in bytes: [`BLOCK`] each, the last one possibly shorter.
    pub fn blocks(&self) -> impl Iterator<Item = Range<u64>> {
        (0..self.digests.len() as u64).map(|block| self.block(block))
    }

    /// Reads and checks the bytes of a range. Fails if they are not the bytes that the digests cover, or cannot be
    /// read.
    pub fn read<'b>(
        &self,
        range: Range<u64>,
        buffer: &'b mut ReadBuffer,
    ) -> Result<&'b [u8], ReadFault> {
        if range.start > range.end || range.end > self.covered {
            return Err(ReadFault::Outside { range, covered: self.covered });
        }
        if range.is_empty() {
            return Ok(&[]);
        }
        let (first, last) = (range.start / BLOCK, (range.end - 1) / BLOCK);
        // The pieces that the range touches, or the whole block on its first read.
        let start = match self.known(first) {
            Some(_) => range.start / PIECE as u64 * PIECE as u64,
            None => first * BLOCK,
        };
        let end = match self.known(last) {
            Some(_) => range.end.next_multiple_of(PIECE as u64),
            None => (last + 1) * BLOCK,
        };
        let end = end.min(self.covered);
        let count = (end - start) as usize;
        if buffer.bytes.len() < count {
            buffer.bytes.resize(count, 0);
        }
        let bytes = buffer.bytes.get_mut(..count).unwrap_or_default();
        self.fill(bytes, start)?;
        let mut rest = &*bytes;
        for number in first..=last {
            let block = self.block(number);
            let length = (block.end.min(end) - block.start.max(start)) as usize;
            let (part, after) = rest.split_at_checked(length).unwrap_or_default();
            self.check(number, block.start.max(start) - block.start, part)?;
            rest = after;
        }
        let (from, to) = ((range.start - start) as usize, (range.end - start) as usize);
        Ok(bytes.get(from..to).unwrap_or_default())
    }

    /// Like [`CheckedFile::read`], in newly allocated memory.
    pub fn bytes(&self, range: Range<u64>) -> Result<Vec<u8>, ReadFault> {
        let mut buffer = ReadBuffer::default();
        self.read(range, &mut buffer).map(<[u8]>::to_vec)
    }

    fn block(&self, number: u64) -> Range<u64> {
        let start = number * BLOCK;
        start..(start + BLOCK).min(self.covered)
    }

    fn known(&self, block: u64) -> Option<&[u128]> {
        Some(self.fingerprints.get(block as usize)?.get()?)
    }

    /// Reads bytes from this position of the file.
    fn fill(&self, bytes: &mut [u8], start: u64) -> Result<(), ReadFault> {
        let Err(error) = read_at(&self.file, bytes, start) else { return Ok(()) };
        // Report the first block that cannot be read whole.
        let length = self.file.metadata().map_or(u64::MAX, |metadata| metadata.len());
        let end = start + bytes.len() as u64;
        match error.kind() == io::ErrorKind::UnexpectedEof {
            true => Err(ReadFault::Cut { block: self.block(length.clamp(start, end - 1) / BLOCK) }),
            false => Err(ReadFault::Io { block: self.block(start / BLOCK), error }),
        }
    }

    /// Checks bytes that begin `from` bytes into a block.
    fn check(&self, number: u64, from: u64, bytes: &[u8]) -> Result<(), ReadFault> {
        let changed =
            |read_before| Err(ReadFault::Changed { block: self.block(number), read_before });
        let mut fingerprints = bytes.chunks(PIECE).map(|piece| self.key.fingerprint(piece));
        if let Some(kept) = self.known(number) {
            let kept = kept.get(from as usize / PIECE..).unwrap_or_default();
            let same = kept.len() * PIECE >= bytes.len()
                && kept.iter().zip(&mut fingerprints).all(|(kept, read)| *kept == read);
            return if same { Ok(()) } else { changed(true) };
        }
        if Some(&blake3::hash(bytes)) != self.digests.get(number as usize) {
            return changed(false);
        }
        if let Some(cell) = self.fingerprints.get(number as usize) {
            // Another thread may have set the same value first.
            let _ = cell.set(fingerprints.collect());
        }
        Ok(())
    }
}

/// Fills `bytes` from position `at` of the file, without moving the file's cursor where the system can do that. A file
/// that ends too early is an error.
#[cfg(unix)]
pub fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

/// Fills `bytes` from position `at` of the file. Systems other than Unix move the file's only cursor, so one reader
/// uses it at a time. A file that ends too early is an error.
#[cfg(not(unix))]
pub fn read_at(mut file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(bytes)
}

// The tests write to a file while it is read, which is simple only on Unix.
#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::FileExt;

    fn bytes(count: usize) -> Vec<u8> {
        (0..count as u64).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
    }

    fn file_of(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    fn checked(bytes: &[u8]) -> CheckedFile {
        let digests = bytes.chunks(BLOCK as usize).map(blake3::hash).collect();
        CheckedFile::new(file_of(bytes), bytes.len() as u64, digests)
    }

    #[test]
    fn a_fingerprint_depends_on_the_key_and_on_every_bit() {
        let (one, two) = (Key::random(), Key::random());
        for count in [1, 15, 16, 17, 100, PIECE - 1, PIECE] {
            let mut piece = bytes(count);
            let of_one = one.fingerprint(&piece);
            assert_ne!(of_one, two.fingerprint(&piece));
            for bit in (0..8 * count).step_by(1 + count / 40) {
                piece[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(one.fingerprint(&piece), of_one, "bit {bit} of {count} bytes");
                piece[bit / 8] ^= 1 << (bit % 8);
            }
            assert_eq!(one.fingerprint(&piece), of_one);
        }
    }

    #[test]
    fn blocks_of_any_length_are_read() {
        let all = bytes(BLOCK as usize);
        let edges = (0..=BLOCK as usize / PIECE).flat_map(|n| {
            let at = n * PIECE;
            [at.saturating_sub(1), at, at + 1, at + 1024, at + 3000]
        });
        for count in edges.filter(|count| (1..=all.len()).contains(count)) {
            let content = &all[..count];
            let file = checked(content);
            let mut buffer = ReadBuffer::default();
            assert_eq!(file.read(0..count as u64, &mut buffer).unwrap(), content, "{count}");
            assert_eq!(file.known(0).unwrap().len(), count.div_ceil(PIECE), "{count}");
            assert_eq!(file.read(0..count as u64, &mut buffer).unwrap(), content, "{count} again");
        }
    }

    #[test]
    fn a_file_without_a_list_is_held_to_its_first_reading() {
        for count in [0, 1, 5000, BLOCK as usize, 2 * BLOCK as usize + 17] {
            let content = bytes(count);
            let (file, digest) = CheckedFile::first_read(file_of(&content)).unwrap();
            assert_eq!((file.covered(), digest), (count as u64, blake3::hash(&content)));
            let mut buffer = ReadBuffer::default();
            assert_eq!(file.read(0..count as u64, &mut buffer).unwrap(), content);
            if count > 0 {
                file.file.set_len(count as u64 - 1).unwrap();
                assert!(matches!(
                    file.read(0..count as u64, &mut buffer),
                    Err(ReadFault::Cut { .. })
                ));
            }
        }
    }

    #[test]
    fn ranges_outside_of_the_digests_are_refused() {
        let file = checked(&bytes(100));
        let mut buffer = ReadBuffer::default();
        for range in [0..101, 101..101, 200..300, u64::MAX - 1..u64::MAX] {
            assert!(matches!(
                file.read(range, &mut buffer),
                Err(ReadFault::Outside { covered: 100, .. })
            ));
        }
        #[expect(clippy::reversed_empty_ranges, reason = "what a damaged table might ask for")]
        let backwards = 60..50;
        assert!(file.read(backwards, &mut buffer).is_err());
        assert_eq!(file.read(100..100, &mut buffer).unwrap(), b"");
    }

    #[test]
    fn a_file_that_is_cut_is_named_with_the_block() {
        let content = bytes(3 * BLOCK as usize);
        let file = checked(&content);
        let mut buffer = ReadBuffer::default();
        file.read(0..3 * BLOCK, &mut buffer).unwrap();
        file.file.set_len(BLOCK + 10_000).unwrap();
        // The remaining part can still be read.
        assert_eq!(
            file.read(BLOCK..BLOCK + 10, &mut buffer).unwrap(),
            &content[BLOCK as usize..][..10]
        );
        let message = file.read(0..3 * BLOCK, &mut buffer).unwrap_err().to_string();
        assert_eq!(message, "it ends before bytes 262144 to 524288 (block 1): it became shorter");
        let message = file.read(2 * BLOCK + 5..2 * BLOCK + 9, &mut buffer).unwrap_err().to_string();
        assert!(message.contains("(block 2)"), "{message}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A byte flipped at any time between reads is never returned.
        #[test]
        fn a_flipped_byte_is_detected_or_not_read(
            count in 1..3 * BLOCK as usize,
            reads in prop::collection::vec((any::<prop::sample::Index>(), 0..40_000usize), 1..12),
            flip in any::<prop::sample::Index>(),
            bit in 0..8u8,
            when in any::<prop::sample::Index>(),
            back in any::<bool>(),
        ) {
            let content = bytes(count);
            let file = checked(&content);
            let (at, when) = (flip.index(count), when.index(reads.len()));
            let mut buffer = ReadBuffer::default();
            let put = |byte: u8| file.file.write_all_at(&[byte], at as u64).unwrap();
            for (number, (start, length)) in reads.iter().enumerate() {
                if number == when {
                    put(content[at] ^ (1 << bit));
                }
                let start = start.index(count);
                let end = (start + length).min(count);
                match file.read(start as u64..end as u64, &mut buffer) {
                    Ok(read) => prop_assert_eq!(read, &content[start..end]),
                    Err(fault) => {
                        prop_assert!(number >= when, "{}", fault);
                        let flipped = format!("(block {})", at as u64 / BLOCK);
                        prop_assert!(fault.to_string().contains(&flipped), "{}", fault);
                    }
                }
                if number >= when && (start..end).contains(&at) {
                    prop_assert!(file.read(start as u64..end as u64, &mut buffer).is_err());
                }
            }
            if back {
                // Restore the original byte.
                put(content[at]);
                prop_assert_eq!(file.read(0..count as u64, &mut buffer).unwrap(), &content[..]);
            }
        }
    }
}
