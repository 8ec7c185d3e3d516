//! Figures of devices as their manufacturers state them, and the share of each that a training step is assumed to reach.
//!
//! These are assumptions, not measurements; docs/scale.md repeats them with their sources.

use compiler::plan::Processor;

/// A device, and how it is connected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// Its name on the command line.
    pub name: &'static str,
    /// The processor that its plans are made for.
    pub processor: Processor,
    /// Operations per second of matrix products in bf16, without sparsity.
    pub bf16: f64,
    /// Operations per second of matrix products in f32.
    pub f32: f64,
    /// Bytes per second of its memory.
    pub memory: f64,
    /// Bytes of its memory.
    pub bytes: f64,
    /// Bytes per second that it receives from devices of its machine.
    pub near: f64,
    /// Bytes per second that it receives from other machines.
    pub far: f64,
    /// Seconds before the first byte of an exchange arrives.
    pub latency: f64,
    /// Devices of a machine.
    pub machine: u64,
}

/// The share of a device's operations per second that large matrix products reach.
pub const PRODUCTS: f64 = 0.65;
/// The share of a memory's bytes per second that a kernel reaches.
pub const MEMORY: f64 = 0.8;
/// The share of a link's bytes per second that an exchange reaches.
pub const LINKS: f64 = 0.75;

const GB: f64 = 1e9;
const TERA: f64 = 1e12;

/// All known devices.
pub const ALL: [Device; 4] = [
    Device {
        name: "h100",
        processor: Processor::Gpu,
        bf16: 989.4 * TERA,
        f32: 66.9 * TERA,
        memory: 3350.0 * GB,
        bytes: 80.0 * GB,
        near: 450.0 * GB,
        far: 50.0 * GB,
        latency: 20e-6,
        machine: 8,
    },
    Device {
        name: "h200",
        processor: Processor::Gpu,
        bf16: 989.4 * TERA,
        f32: 66.9 * TERA,
        memory: 4800.0 * GB,
        bytes: 141.0 * GB,
        near: 450.0 * GB,
        far: 50.0 * GB,
        latency: 20e-6,
        machine: 8,
    },
    Device {
        name: "a100",
        processor: Processor::Gpu,
        bf16: 312.0 * TERA,
        f32: 19.5 * TERA,
        memory: 2039.0 * GB,
        bytes: 80.0 * GB,
        near: 300.0 * GB,
        far: 25.0 * GB,
        latency: 20e-6,
        machine: 8,
    },
    // Two cores of a server with AVX-512, which have no fast products in bf16, and its loopback interface.
    Device {
        name: "cpu",
        processor: Processor::Cpu,
        bf16: 0.2 * TERA,
        f32: 0.2 * TERA,
        memory: 20.0 * GB,
        bytes: 16.0 * GB,
        near: 2.0 * GB,
        far: 1.0 * GB,
        latency: 100e-6,
        machine: 1,
    },
];

impl Device {
    /// The device with this name.
    pub fn named(name: &str) -> Option<&'static Device> {
        ALL.iter().find(|device| device.name == name)
    }
}
