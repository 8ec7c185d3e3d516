//! Digests of human-readable text: `blake3(tag + "\n" + text)`, so any script with the `blake3` package can recompute
//! them.

use std::fmt;

/// A BLAKE3 digest, shown as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// `blake3(tag + "\n" + text)`.
    pub fn of(tag: &str, text: &str) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(tag.as_bytes());
        hasher.update(b"\n");
        hasher.update(text.as_bytes());
        Digest(*hasher.finalize().as_bytes())
    }

    /// Reads 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Digest> {
        if text.len() != 64 || text.bytes().any(|b| b.is_ascii_uppercase()) {
            return None;
        }
        let hash = blake3::Hash::from_hex(text).ok()?;
        Some(Digest(*hash.as_bytes()))
    }

    /// The first 12 digits, for display.
    pub fn short(&self) -> String {
        self.to_string().chars().take(12).collect()
    }

    /// The digest's bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first eight bytes as a big-endian integer: the key of a counter-based generator.
    pub fn key(&self) -> u64 {
        self.0.iter().take(8).fold(0, |key, byte| key << 8 | u64::from(*byte))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", self.short())
    }
}
