//! The published numbers, by the checks of `canonc selftest`.

use std::path::Path;

use models::selftest::read_model;
use runtime::execute::{KernelRequest, Machine};
use runtime::selftest::goldens::{names, one};
use runtime::{Device, Kind};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");
const CPU: Machine =
    Machine { device: Device::Cpu, kind: Kind::Float, kernels: KernelRequest::FASTEST };

#[test]
fn every_golden_holds_on_the_cpu() {
    let folder = Path::new(FOLDER);
    let names = names(folder);
    for name in ["hf_llamacanon", "dplr_scan", "gla_scan 128x256 bf16", "ssd_scan 256x128 f32"] {
        assert!(names.iter().any(|known| known == name), "{name} is not among {names:?}");
    }
    for name in &names {
        let golden = one(folder, name, CPU, read_model).unwrap();
        assert!(golden.holds(), "{golden:?}");
        assert_eq!((&golden.name, golden.bf16), (name, name.ends_with(" bf16")));
        // A result in bf16 is off by its own rounding.
        assert!(!golden.bf16 || golden.largest > 1e-3, "{golden:?}");
        assert!(golden.path.is_none_or(|path| path.starts_with("fused/")), "{name}");
    }
}
