//! A lock's requirements for the machine's arithmetic, and facts about the machine.
//!
//! libtorch is linked, so it reads environment variables before `main`: the CLI compares first, and restarts itself once
//! with the missing variables set.

mod memory;
mod variables;

use std::collections::BTreeMap;
use std::fmt;

pub use memory::{
    MemoryLimit, memory_limit, page_faults_of, peak_memory, peak_memory_of, resident_memory,
};
pub(crate) use variables::recorded;
pub use variables::{Effect, UNRECORDED, effect};

/// The instruction sets that ATen can be limited to. They give different results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuCapability {
    /// ATen's baseline code, without these instruction sets.
    Default,
    /// AVX2.
    Avx2,
    /// AVX-512.
    Avx512,
}

/// How MKL chooses its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlasMode {
    /// By the CPU that it finds, with the same bits for any thread count.
    Auto,
    /// AVX2 code with strict reproducibility: the same bits on any CPU that has AVX2, and for any thread count.
    Avx2Strict,
    /// Code for any x86-64 CPU.
    Compatible,
}

/// The requirements of a lock's platform section; `None` means the machine's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlatformSpec {
    /// Number of threads.
    pub threads: Option<u32>,
    /// The instruction set of ATen's kernels.
    pub cpu_capability: Option<CpuCapability>,
    /// How MKL chooses its code.
    pub blas: Option<BlasMode>,
}

impl CpuCapability {
    /// ATen's spelling in `ATEN_CPU_CAPABILITY` and, in capitals, in its reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

impl BlasMode {
    /// The mode that locks call so.
    pub fn named(name: &str) -> Option<BlasMode> {
        [Self::Auto, Self::Avx2Strict, Self::Compatible]
            .into_iter()
            .find(|mode| mode.name() == name)
    }

    /// The spelling in a lock.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Avx2Strict => "avx2-strict",
            Self::Compatible => "compatible",
        }
    }

    fn cbwr(self) -> &'static str {
        match self {
            // Without STRICT, one and two threads give different results.
            Self::Auto => "AUTO,STRICT",
            Self::Avx2Strict => "AVX2,STRICT",
            Self::Compatible => "COMPATIBLE",
        }
    }
}

impl fmt::Display for CpuCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for BlasMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The environment variables that enforce a lock's platform section, sorted by name.
pub fn required_env(spec: &PlatformSpec) -> Vec<(&'static str, String)> {
    let PlatformSpec { threads, cpu_capability, blas } = spec;
    let mut env = BTreeMap::new();
    if let Some(threads) = threads {
        env.insert("OMP_NUM_THREADS", threads.to_string());
        env.insert("MKL_NUM_THREADS", threads.to_string());
        // Both may otherwise use fewer threads than requested, depending on load.
        env.insert("OMP_DYNAMIC", "FALSE".to_owned());
        env.insert("MKL_DYNAMIC", "FALSE".to_owned());
    }
    if let Some(capability) = cpu_capability {
        env.insert("ATEN_CPU_CAPABILITY", capability.name().to_owned());
    }
    if let Some(blas) = blas {
        env.insert("MKL_CBWR", blas.cbwr().to_owned());
    }
    env.into_iter().collect()
}

/// The variable that makes MKL's results the same for any thread count, and so for any number of ranks, whose threads
/// share the cores; unless the environment already has one.
pub fn strict_blas(env: impl Fn(&str) -> Option<String>) -> Option<(&'static str, &'static str)> {
    env("MKL_CBWR").is_none().then_some(("MKL_CBWR", BlasMode::Auto.cbwr()))
}

/// The variables of [`required_env`] that are missing or differ. If there are any, restart with them set.
pub fn needs_reexec(
    spec: &PlatformSpec,
    env: impl Fn(&str) -> Option<String>,
) -> Option<Vec<(&'static str, String)>> {
    let missing: Vec<_> = required_env(spec)
        .into_iter()
        .filter(|(name, value)| env(name).as_ref() != Some(value))
        .collect();
    if missing.is_empty() { None } else { Some(missing) }
}

/// Facts about the machine that need no libtorch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// `linux/x86_64`
    pub system: String,
    /// The CPU's own name; empty if unknown.
    pub cpu_model: String,
    /// Number of hardware threads that this process may use at once.
    pub cores: usize,
    /// 0 if unknown.
    pub memory_bytes: u64,
    /// The best instruction set of the CPU, even if libtorch uses less.
    pub cpu_capability: CpuCapability,
    /// The environment variables that results may depend on, with what may be published of their values.
    pub env: BTreeMap<String, String>,
}

/// Observes the machine. Cheap, and never fails: unknown facts are empty.
pub fn observe_host() -> Host {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    Host {
        system: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        cpu_model: field(&read("/proc/cpuinfo"), "model name"),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: kibibytes(&field(&read("/proc/meminfo"), "MemTotal")),
        cpu_capability: best_capability(),
        env: std::env::vars_os()
            .filter_map(|(name, value)| {
                let name = name.into_string().ok()?;
                let value = recorded(&name, &value.to_string_lossy())?;
                Some((name, value))
            })
            .collect(),
    }
}

/// The version of the system's NVIDIA driver, as 580.65.06; empty if there is none.
pub fn nvidia_driver() -> String {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    version_in(&text)
}

/// The first word of the first line that begins with a digit and has a point.
fn version_in(text: &str) -> String {
    let mut words = text.lines().next().unwrap_or_default().split_whitespace();
    let is_version =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    words.find(is_version).unwrap_or_default().to_owned()
}

/// The value of the first `name : value` line.
fn field(text: &str, name: &str) -> String {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

fn kibibytes(text: &str) -> u64 {
    text.strip_suffix("kB").and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Whether this CPU multiplies bf16 in hardware. CPUs with AMX have AVX512-BF16 as well.
pub fn multiplies_bf16() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

#[cfg(target_arch = "x86_64")]
fn best_capability() -> CpuCapability {
    use std::arch::is_x86_feature_detected as has;
    if has!("avx512f") && has!("avx512vl") && has!("avx512bw") && has!("avx512dq") && has!("fma") {
        CpuCapability::Avx512
    } else if has!("avx2") && has!("fma") {
        CpuCapability::Avx2
    } else {
        CpuCapability::Default
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn best_capability() -> CpuCapability {
    CpuCapability::Default
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: PlatformSpec = PlatformSpec {
        threads: Some(2),
        cpu_capability: Some(CpuCapability::Avx2),
        blas: Some(BlasMode::Avx2Strict),
    };

    #[test]
    fn a_drivers_version_is_found_in_its_line() {
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release\nGCC 12.2\n";
        assert_eq!(version_in(text), "580.65.06");
        assert_eq!(version_in(""), "");
    }

    #[test]
    fn a_spec_without_requirements_sets_no_variable() {
        assert_eq!(required_env(&PlatformSpec::default()), []);
        assert_eq!(needs_reexec(&PlatformSpec::default(), |_| None), None);
    }

    #[test]
    fn a_full_spec_sets_every_required_variable() {
        let env: Vec<String> =
            required_env(&FULL).iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            env.join(" "),
            "ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2,STRICT MKL_DYNAMIC=FALSE MKL_NUM_THREADS=2 OMP_DYNAMIC=FALSE OMP_NUM_THREADS=2"
        );
    }

    #[test]
    fn starting_again_with_what_is_missing_is_enough() {
        let mut env = BTreeMap::from([
            ("OMP_NUM_THREADS", "64".to_owned()),
            ("MKL_CBWR", "AVX2,STRICT".to_owned()),
        ]);
        let missing = needs_reexec(&FULL, |name| env.get(name).cloned()).unwrap();
        assert!(missing.contains(&("OMP_NUM_THREADS", "2".to_owned())), "{missing:?}");
        assert!(!missing.iter().any(|(name, _)| *name == "MKL_CBWR"), "{missing:?}");
        env.extend(missing);
        assert_eq!(needs_reexec(&FULL, |name| env.get(name).cloned()), None);
    }

    #[test]
    fn fields_of_the_systems_files() {
        assert_eq!(field("a\t: 1\nmodel name\t: X: 9\nmodel name: Y", "model name"), "X: 9");
        assert_eq!(field("", "model name"), "");
        assert_eq!((kibibytes("12 kB"), kibibytes("12"), kibibytes("")), (12288, 0, 0));
    }

    #[test]
    fn the_host_has_cores_and_a_system_name() {
        let host = observe_host();
        assert!(host.cores >= 1 && host.system.contains('/'), "{host:?}");
    }
}
