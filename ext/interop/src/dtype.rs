//! Numbers as stored in files, and as f32: f16 and bf16 convert exactly, and f32 to bf16 rounds to the nearest, ties to
//! even.

use half::{bf16, f16};

/// Storage types of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// IEEE single precision.
    F32,
    /// bfloat16: the upper half of a single.
    Bf16,
    /// IEEE half precision.
    F16,
}

impl Dtype {
    /// Size of one value.
    pub fn bytes(self) -> u64 {
        match self {
            Dtype::F32 => 4,
            Dtype::Bf16 | Dtype::F16 => 2,
        }
    }

    /// Its name in safetensors.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "F32",
            Dtype::Bf16 => "BF16",
            Dtype::F16 => "F16",
        }
    }

    /// Its name in `torch`.
    pub fn torch(self) -> &'static str {
        match self {
            Dtype::F32 => "float32",
            Dtype::Bf16 => "bfloat16",
            Dtype::F16 => "float16",
        }
    }

    /// The type with this name in safetensors.
    pub fn named(name: &str) -> Option<Dtype> {
        [Dtype::F32, Dtype::Bf16, Dtype::F16].into_iter().find(|dtype| dtype.name() == name)
    }

    /// Decodes bytes to values; an incomplete value at the end is ignored.
    pub fn decode(self, bytes: &[u8], out: &mut Vec<f32>) {
        match self {
            Dtype::F32 => {
                out.extend(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)));
            }
            Dtype::Bf16 => {
                let pairs = bytes.as_chunks::<2>().0.iter();
                out.extend(pairs.map(|b| bf16::from_le_bytes(*b).to_f32()));
            }
            Dtype::F16 => {
                let pairs = bytes.as_chunks::<2>().0.iter();
                out.extend(pairs.map(|b| f16::from_le_bytes(*b).to_f32()));
            }
        }
    }

    /// Encodes values as little-endian bytes, rounded to the nearest.
    pub fn encode(self, values: &[f32], out: &mut Vec<u8>) {
        match self {
            Dtype::F32 => out.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            Dtype::Bf16 => {
                out.extend(values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()));
            }
            Dtype::F16 => out.extend(values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes())),
        }
    }
}
