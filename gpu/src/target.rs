//! Selects the compiled image for a GPU. A cubin runs only on the architecture that it was compiled for (one without
//! `a`, on later minor versions too); PTX is compiled by the driver for any newer GPU.

use std::fmt;
use std::str::FromStr;

/// The compute capability of a GPU, such as 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    /// The architecture's generation.
    pub major: u32,
    /// The variant of the architecture.
    pub minor: u32,
}

/// What an image was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Machine code for compute capability 8.x (A100 and its relatives).
    Sm80,
    /// Machine code for 9.0 only (H100, H200).
    Sm90a,
    /// Machine code for 10.0 only (B200).
    Sm100a,
    /// Text that the driver compiles for 8.0 or any newer GPU.
    Ptx80,
}

impl Target {
    /// All targets that every kernel is compiled for.
    pub const ALL: [Target; 4] = [Target::Sm80, Target::Sm90a, Target::Sm100a, Target::Ptx80];

    /// The image for a GPU, or why none runs there.
    pub fn for_capability(capability: Capability) -> Result<Target, TooOld> {
        match (capability.major, capability.minor) {
            (0..8, _) => Err(TooOld(capability)),
            (8, _) => Ok(Target::Sm80),
            (9, 0) => Ok(Target::Sm90a),
            (10, 0) => Ok(Target::Sm100a),
            (_, _) => Ok(Target::Ptx80),
        }
    }

    /// The name in the manifest and in records of runs.
    pub fn name(self) -> &'static str {
        match self {
            Target::Sm80 => "sm_80",
            Target::Sm90a => "sm_90a",
            Target::Sm100a => "sm_100a",
            Target::Ptx80 => "ptx_80",
        }
    }
}

/// A GPU that no image runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOld(pub Capability);

impl fmt::Display for TooOld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "compute capability {} is below 8.0", self.0)
    }
}

impl std::error::Error for TooOld {}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(name: &str) -> Result<Target, String> {
        Target::ALL
            .into_iter()
            .find(|target| target.name() == name)
            .ok_or_else(|| format!("`{name}` is not a target: sm_80, sm_90a, sm_100a or ptx_80"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(major: u32, minor: u32) -> Result<Target, TooOld> {
        Target::for_capability(Capability { major, minor })
    }

    #[test]
    fn each_gpu_has_the_image_that_it_runs() {
        // A100, A10 and L40 run machine code for 8.0; code for 9.0 and 10.0 runs only there.
        for minor in [0, 6, 9] {
            assert_eq!(target(8, minor), Ok(Target::Sm80));
        }
        assert_eq!(target(9, 0), Ok(Target::Sm90a));
        assert_eq!(target(10, 0), Ok(Target::Sm100a));
        for (major, minor) in [(9, 1), (10, 3), (11, 0), (12, 0), (12, 1)] {
            assert_eq!(target(major, minor), Ok(Target::Ptx80));
        }
        let old = target(7, 5).unwrap_err();
        assert_eq!(old.to_string(), "compute capability 7.5 is below 8.0");
    }

    #[test]
    fn names_are_read_back() {
        for target in Target::ALL {
            assert_eq!(target.name().parse(), Ok(target));
        }
        assert!("sm_70".parse::<Target>().is_err());
    }
}
