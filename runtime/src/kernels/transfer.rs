//! Copies between the CPU and a device during training: batches in, a few numbers out.
//!
//! Neither direction waits for work that is queued after it. A training step reads back once; counters show that on any
//! device, so the CPU's tests check it too.

use std::cell::Cell;

use tch::{Device, Kind, Tensor};

use super::KernelError;
use super::ffi::DeviceEvent;

pub(crate) use super::ffi::TimedEvent;

thread_local! {
    static READBACKS: Cell<u64> = const { Cell::new(0) };
    static WAITS: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has read numbers back from a device during training.
pub fn readbacks() -> u64 {
    READBACKS.get()
}

/// Waits until a device has done all that is queued, before a clock is read. On the CPU it has.
pub fn wait_for(device: Device) -> Result<(), KernelError> {
    WAITS.set(WAITS.get() + 1);
    match device {
        Device::Cuda(index) => DeviceEvent::record(index)?.wait(),
        Device::Cpu | Device::Mps | Device::Vulkan => Ok(()),
    }
}

/// How often this thread has waited for a device.
pub fn waits() -> u64 {
    WAITS.get()
}

/// Numbers on their way from a device.
#[derive(Debug)]
pub struct Readback {
    /// [n] f64 on the CPU, in memory that the device can write to.
    numbers: Tensor,
    /// When they are there; on the CPU, now.
    arrival: Option<DeviceEvent>,
}

impl Readback {
    /// Queues one copy of these numbers, of one device. Work that is queued later does not delay it.
    pub fn begin(numbers: &[&Tensor]) -> Result<Self, KernelError> {
        READBACKS.set(READBACKS.get() + 1);
        let wide = numbers
            .iter()
            .map(|number| Ok(number.f_reshape([1])?.f_to_kind(Kind::Double)?))
            .collect::<Result<Vec<_>, KernelError>>()?;
        // With several ranks, some numbers were summed on the CPU.
        let device = wide.iter().map(Tensor::device).find(|device| *device != Device::Cpu);
        let device = device.unwrap_or(Device::Cpu);
        let on_device = wide
            .iter()
            .map(|number| Ok(number.f_to_device(device)?))
            .collect::<Result<Vec<_>, KernelError>>()?;
        let joined = Tensor::f_cat(&on_device, 0)?; // [n]
        let Device::Cuda(index) = device else {
            return Ok(Self { numbers: joined.f_to_device(Device::Cpu)?, arrival: None });
        };
        // A copy that does not block makes pinned memory for its result.
        let numbers = joined.f_to_device_(Device::Cpu, Kind::Double, true, false)?;
        Ok(Self { numbers, arrival: Some(DeviceEvent::record(index)?) })
    }

    /// All numbers, in order. Waits until they have arrived.
    pub fn wait_for_all(self) -> Result<Vec<f64>, KernelError> {
        if let Some(arrival) = self.arrival {
            arrival.wait()?;
        }
        Ok(Vec::try_from(&self.numbers)?)
    }

    /// The numbers, in order. Waits until they have arrived.
    pub fn wait<const N: usize>(self) -> Result<[f64; N], KernelError> {
        let numbers = self.wait_for_all()?;
        let count = numbers.len();
        numbers
            .try_into()
            .map_err(|_| KernelError::new(format!("{count} numbers were read, {N} expected")))
    }
}

/// Token ids as a tensor on a device. The copy to a GPU is from pinned memory and is only queued.
pub fn upload(ids: &[i64], shape: &[i64], device: Device) -> Result<Tensor, KernelError> {
    let on_host = Tensor::f_from_slice(ids)?.f_reshape(shape)?;
    match device {
        Device::Cuda(_) => {
            Ok(on_host.f_pin_memory(device)?.f_to_device_(device, Kind::Int64, true, false)?)
        }
        Device::Cpu | Device::Mps | Device::Vulkan => Ok(on_host.f_to_device(device)?),
    }
}

/// A number from the caller of a plan, never one that a step has computed: those are on the device, and reading one
/// would wait for it.
pub(crate) fn given(number: &Tensor) -> Result<f64, KernelError> {
    on_cpu(number)?;
    Ok(number.f_double_value(&[])?)
}

/// Like [`given`], for an integer.
pub(crate) fn given_integer(number: &Tensor) -> Result<i64, KernelError> {
    on_cpu(number)?;
    Ok(number.f_int64_value(&[])?)
}

fn on_cpu(number: &Tensor) -> Result<(), KernelError> {
    match number.device() {
        Device::Cpu => Ok(()),
        other @ (Device::Cuda(_) | Device::Mps | Device::Vulkan) => Err(KernelError::new(format!(
            "a step would wait for a number on {other:?}\nhelp: this is a bug in canonc; please report it"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_arrive_in_order_and_are_counted() {
        let before = readbacks();
        let (loss, norm) = (Tensor::from(0.1f64), Tensor::from(3i64));
        let readback = Readback::begin(&[&loss, &norm]).unwrap();
        assert_eq!(readback.wait::<2>().unwrap(), [0.1, 3.0]);
        assert_eq!(readbacks(), before + 1);
        let error = Readback::begin(&[&loss]).unwrap().wait::<2>().unwrap_err();
        assert_eq!(error.to_string(), "1 numbers were read, 2 expected");
    }

    #[test]
    fn ids_keep_their_order() {
        let ids = upload(&[1, 2, 3, 4, 5, 6], &[2, 3], Device::Cpu).unwrap();
        assert_eq!((ids.size(), ids.int64_value(&[1, 0])), (vec![2, 3], 4));
    }
}
