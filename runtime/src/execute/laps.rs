//! Times of a plan's steps. A GPU gets to a step long after it was launched, so its times are those of events between the
//! steps, which are read when the last one is done.

use std::time::{Duration, Instant};

use tch::Device;

use crate::kernels::KernelError;
use crate::kernels::transfer::TimedEvent;

/// What tells the time on a device.
pub(super) trait Clock {
    type Mark;

    /// Marks the end of what was launched so far. Does not wait.
    fn mark(&self) -> Result<Self::Mark, KernelError>;

    /// The time between two marks. Waits until the device has got to the later one.
    fn between(&self, earlier: &Self::Mark, later: &Self::Mark) -> Result<Duration, KernelError>;
}

/// The host's clock, or the events of a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) enum StepClock {
    Host,
    Cuda(usize),
}

#[derive(Debug)]
pub(super) enum StepMark {
    Host(Instant),
    Cuda(TimedEvent),
}

impl StepClock {
    pub(super) fn for_device(device: Device) -> Self {
        match device {
            Device::Cuda(index) => Self::Cuda(index),
            Device::Cpu | Device::Mps | Device::Vulkan => Self::Host,
        }
    }
}

impl Clock for StepClock {
    type Mark = StepMark;

    fn mark(&self) -> Result<StepMark, KernelError> {
        Ok(match self {
            Self::Host => StepMark::Host(Instant::now()),
            Self::Cuda(index) => StepMark::Cuda(TimedEvent::record(*index)?),
        })
    }

    fn between(&self, earlier: &StepMark, later: &StepMark) -> Result<Duration, KernelError> {
        match (earlier, later) {
            (StepMark::Host(earlier), StepMark::Host(later)) => Ok(later.duration_since(*earlier)),
            (StepMark::Cuda(earlier), StepMark::Cuda(later)) => later.since(earlier),
            (StepMark::Host(_), StepMark::Cuda(_)) | (StepMark::Cuda(_), StepMark::Host(_)) => {
                Err(KernelError::new("marks of two clocks".to_owned()))
            }
        }
    }
}

/// The time of each step of a run: each begins where the one before it ends.
pub(super) struct Laps<C: Clock> {
    clock: C,
    start: C::Mark,
    ends: Vec<C::Mark>,
}

impl<C: Clock> Laps<C> {
    pub(super) fn start(clock: C) -> Result<Self, KernelError> {
        Ok(Self { start: clock.mark()?, clock, ends: Vec::new() })
    }

    /// The next step was launched.
    pub(super) fn lap(&mut self) -> Result<(), KernelError> {
        self.ends.push(self.clock.mark()?);
        Ok(())
    }

    /// The time of each step, in order.
    pub(super) fn times(self) -> Result<Vec<Duration>, KernelError> {
        let Self { clock, start, ends } = self;
        let starts = std::iter::once(&start).chain(&ends);
        starts.zip(&ends).map(|(start, end)| clock.between(start, end)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A GPU that gets to a mark some milliseconds after the one before. It says what it was asked.
    struct Stream<'a> {
        milliseconds: [u64; 4],
        asked: &'a RefCell<Vec<String>>,
    }

    impl Clock for Stream<'_> {
        type Mark = usize;

        fn mark(&self) -> Result<usize, KernelError> {
            let mut asked = self.asked.borrow_mut();
            asked.push("mark".to_owned());
            Ok(asked.len() - 1)
        }

        fn between(&self, earlier: &usize, later: &usize) -> Result<Duration, KernelError> {
            self.asked.borrow_mut().push(format!("{earlier} to {later}"));
            let at = |mark: usize| self.milliseconds[..=mark].iter().sum::<u64>();
            Ok(Duration::from_millis(at(*later) - at(*earlier)))
        }
    }

    #[test]
    fn steps_are_marked_as_they_are_launched_and_read_at_the_end() {
        let asked = RefCell::default();
        let mut laps =
            Laps::start(Stream { milliseconds: [7, 30, 0, 200], asked: &asked }).unwrap();
        for _ in 0..3 {
            laps.lap().unwrap();
        }
        let times = laps.times().unwrap();
        assert_eq!(times, [30, 0, 200].map(Duration::from_millis));
        let expected = ["mark", "mark", "mark", "mark", "0 to 1", "1 to 2", "2 to 3"];
        assert_eq!(*asked.borrow(), expected);
    }

    #[test]
    fn steps_without_a_gap_add_up_to_the_whole() {
        let mut laps = Laps::start(StepClock::for_device(Device::Cpu)).unwrap();
        for _ in 0..3 {
            laps.lap().unwrap();
        }
        let (StepMark::Host(start), Some(StepMark::Host(end))) = (&laps.start, laps.ends.last())
        else {
            panic!("not the host's clock")
        };
        let total = end.duration_since(*start);
        assert_eq!(laps.times().unwrap().into_iter().sum::<Duration>(), total);
    }

    #[test]
    fn a_gpu_is_timed_by_its_events() {
        assert!(matches!(StepClock::for_device(Device::Cuda(3)), StepClock::Cuda(3)));
        // Without a GPU there is an error, never the host's time.
        assert!(Laps::start(StepClock::Cuda(3)).is_err());
    }
}
