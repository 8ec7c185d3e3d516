//! Progress of a run on the screen and, if asked, in an event file.
//!
//! In: what an observer of a run hears. Out: the same to [`Screen`] and [`Live`]. Must stay true: an event file that
//! cannot be written ends with a warning; training goes on.

use records::metrics::{Evaluation, Step};
use records::run::Event;
use runtime::train::Observer;

use canonc::fail::reason;
use canonc::live::Live;
use canonc::output;

use crate::run::Screen;

pub(crate) struct Shown {
    pub(crate) screen: Screen,
    pub(crate) live: Option<Live>,
}

impl Shown {
    /// Lets the event file go after an error: a torn record ends it. The next process repairs it.
    fn kept(&mut self, written: std::io::Result<()>) {
        let Err(error) = written else { return };
        self.live = None;
        self.screen.clear();
        output::note(&format!(
            "warning: the event file for TensorBoard cannot be written, and ends here: {}; \
             `canonc report RUN --tensorboard DIR` writes it whole",
            reason(&error)
        ));
    }
}

impl Observer for Shown {
    fn step(&mut self, step: &Step, seconds: f64) {
        self.screen.step(step, seconds);
        let written = self.live.as_mut().map_or(Ok(()), |live| live.step(step, seconds));
        self.kept(written);
    }

    fn evaluation(&mut self, evaluation: &Evaluation, seconds: f64) {
        self.screen.evaluation(evaluation, seconds);
        let written = self.live.as_mut().map_or(Ok(()), |live| live.evaluation(evaluation));
        self.kept(written);
    }

    fn event(&mut self, event: &Event) {
        self.screen.event(event);
    }
}
