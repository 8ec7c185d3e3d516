//! Exchanges between GPUs whose results the device waits for, and this process does not.
//!
//! This process keeps launching, and looks back only where it would wait for the device anyway, or when it is far ahead:
//! an exchange with a rank that hangs or is gone never ends, and without that look neither would this process. Far ahead
//! is less than fills the device's queue of launches, at which a launch would never return.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::kernels::{KernelError, Pending};

/// Exchanges that this process may be ahead of the device: those of about four layers.
const AHEAD: usize = 8;

/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_micros(50);

/// Something that ends by itself, or fails.
pub(super) trait Ends {
    /// Whether it has ended, or why it failed. Does not wait.
    fn has_ended(&self) -> Result<bool, KernelError>;
}

impl Ends for Pending {
    fn has_ended(&self) -> Result<bool, KernelError> {
        self.is_done()
    }
}

/// What has begun and was not seen to end, the oldest first.
#[derive(Debug)]
pub(super) struct Outstanding<E> {
    begun: RefCell<VecDeque<E>>,
    /// How long one may take after the one before it.
    timeout: Duration,
}

impl<E: Ends> Outstanding<E> {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { begun: RefCell::default(), timeout }
    }

    /// Another one has begun. Waits for old ones if there are too many.
    pub(super) fn add(&self, exchange: E) -> Result<(), KernelError> {
        self.begun.borrow_mut().push_back(exchange);
        self.settle_but(AHEAD)
    }

    /// Waits until all have ended.
    pub(super) fn settle(&self) -> Result<(), KernelError> {
        self.settle_but(0)
    }

    fn settle_but(&self, left: usize) -> Result<(), KernelError> {
        let mut begun = self.begun.borrow_mut();
        let mut since = Instant::now();
        while begun.len() > left {
            let ended = begun.front().map_or(Ok(true), Ends::has_ended)?;
            if ended {
                begun.pop_front();
                since = Instant::now();
            } else if since.elapsed() >= self.timeout {
                return Err(KernelError::new(format!(
                    "an exchange between GPUs did not end in {} s",
                    self.timeout.as_secs()
                )));
            } else {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// Ends after this number of polls.
    struct Exchange {
        after: u32,
        looks: Cell<u32>,
        seen: Rc<Cell<u32>>,
    }

    impl Ends for Exchange {
        fn has_ended(&self) -> Result<bool, KernelError> {
            self.looks.set(self.looks.get() + 1);
            self.seen.set(self.seen.get() + 1);
            match self.after {
                u32::MAX => Err(KernelError::new("remote error".to_owned())),
                after => Ok(self.looks.get() > after),
            }
        }
    }

    struct PendingCase {
        all: Outstanding<Exchange>,
        seen: Rc<Cell<u32>>,
    }

    fn case(timeout: Duration) -> PendingCase {
        PendingCase { all: Outstanding::new(timeout), seen: Rc::default() }
    }

    impl PendingCase {
        fn add(&self, after: u32) -> Result<(), KernelError> {
            self.all.add(Exchange { after, looks: Cell::new(0), seen: self.seen.clone() })
        }
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_few_exchanges_are_begun_without_a_look_at_the_device() {
        let case = case(LONG);
        for _ in 0..AHEAD {
            case.add(u32::MAX - 1).unwrap();
        }
        assert_eq!(case.seen.get(), 0);
    }

    #[test]
    fn one_too_many_waits_for_the_oldest_alone() {
        let case = case(LONG);
        case.add(3).unwrap();
        for _ in 0..AHEAD {
            case.add(u32::MAX - 1).unwrap();
        }
        assert_eq!((case.seen.get(), case.all.begun.borrow().len()), (4, AHEAD));
    }

    #[test]
    fn all_are_settled_in_order() {
        let case = case(LONG);
        for after in [2, 0, 1] {
            case.add(after).unwrap();
        }
        case.all.settle().unwrap();
        assert_eq!((case.seen.get(), case.all.begun.borrow().len()), (3 + 1 + 2, 0));
        case.all.settle().unwrap();
    }

    #[test]
    fn one_that_never_ends_is_an_error_after_the_timeout() {
        let case = case(Duration::ZERO);
        case.add(0).unwrap();
        case.add(u32::MAX - 1).unwrap();
        let error = case.all.settle().unwrap_err().to_string();
        assert_eq!(error, "an exchange between GPUs did not end in 0 s");
        // The first one had ended.
        assert_eq!(case.seen.get(), 2);
    }

    #[test]
    fn a_failure_is_reported_in_its_own_words() {
        let case = case(LONG);
        case.add(0).unwrap();
        case.add(u32::MAX).unwrap();
        assert_eq!(case.all.settle().unwrap_err().to_string(), "remote error");
    }
}
