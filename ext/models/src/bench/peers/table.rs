//! The measurements of `bench peers` as a table with a row for each process, and the sentences that sum it up.
//!
//! A ratio is of two processes that took turns, round by round; PyTorch is represented by its fastest form.

use records::progress::bytes;
use report::statistics::median;

use super::ARCHS;
use crate::bench::process::Group;
use cli::output;

/// One form of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// canonc's.
    Ours,
    /// PyTorch's, as written.
    Eager,
    /// The same with `conv1d` in place of shifted products.
    EagerConv1d,
    /// Under `torch.compile`.
    Compile,
}

/// A process: an architecture, a form, and whether PyTorch's allocator keeps its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub arch: &'a str,
    pub side: Side,
    /// True also for canonc where it takes turns with such processes.
    pub retaining: bool,
}

impl Entry<'_> {
    pub(super) fn name(&self) -> &'static str {
        match (self.side, self.retaining) {
            (Side::Ours, false) => "canonc",
            (Side::Ours, true) => "canonc, again",
            (Side::Eager, false) => "PyTorch eager",
            (Side::Eager, true) => "PyTorch eager, retaining",
            (Side::EagerConv1d, false) => "PyTorch eager, conv1d",
            (Side::EagerConv1d, true) => "PyTorch eager, conv1d, retaining",
            (Side::Compile, false) => "PyTorch compile",
            (Side::Compile, true) => "PyTorch compile, retaining",
        }
    }
}

/// The steps of one process.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    /// Processes of one session took turns.
    pub session: usize,
    pub entry: Entry<'a>,
    /// By round.
    pub groups: Vec<Group>,
    /// Peak memory in bytes.
    pub peak: Option<u64>,
}

impl Measured<'_> {
    fn steps(&self) -> Vec<f64> {
        self.groups.iter().flat_map(|group| group.ms.iter().copied()).collect()
    }

    fn median(&self) -> f64 {
        median(&self.steps())
    }

    /// The median of each round.
    fn rounds(&self) -> Vec<f64> {
        self.groups.iter().map(|group| median(&group.ms)).collect()
    }

    /// Page faults per step.
    fn faults(&self) -> Option<f64> {
        let faults: Option<u64> = self.groups.iter().map(|group| group.faults).sum();
        faults.map(|faults| faults as f64 / self.steps().len() as f64)
    }

    /// Ratios of times, by round.
    fn over(&self, other: &Measured<'_>) -> Spread {
        let ratios = self.rounds().iter().zip(other.rounds()).map(|(a, b)| a / b).collect();
        Spread(ratios)
    }
}

/// Numbers of the rounds.
struct Spread(Vec<f64>);

impl Spread {
    fn median(&self) -> f64 {
        median(&self.0)
    }

    fn lowest(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    fn highest(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }
}

/// `1.52× (1.48–1.60)`.
fn times(ratios: &Spread) -> String {
    format!("{:.2}× ({:.2}–{:.2})", ratios.median(), ratios.lowest(), ratios.highest())
}

/// The architectures, in the order of the first session.
fn archs<'a>(measured: &[Measured<'a>]) -> Vec<&'a str> {
    let mut archs: Vec<&str> = Vec::new();
    for one in measured {
        if !archs.contains(&one.entry.arch) {
            archs.push(one.entry.arch);
        }
    }
    archs
}

/// A row for each process.
pub fn table(measured: &[Measured<'_>]) -> String {
    let head = ["", "median", "best", "rounds", "PyTorch/canonc", "faults/step", "peak memory"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for arch in archs(measured) {
        rows.push(vec![arch.to_owned()]);
        for one in measured.iter().filter(|one| one.entry.arch == arch) {
            let rounds = Spread(one.rounds());
            let best = one.steps().into_iter().fold(f64::NAN, f64::min);
            let nothing = || "–".to_owned();
            rows.push(vec![
                format!("  {}", one.entry.name()),
                format!("{:.0} ms", one.median()),
                format!("{best:.0} ms"),
                format!("{:.0}–{:.0}", rounds.lowest(), rounds.highest()),
                match (one.entry.side, ours(measured, one)) {
                    (Side::Ours, _) | (_, None) => String::new(),
                    (Side::Eager | Side::EagerConv1d | Side::Compile, Some(ours)) => {
                        times(&one.over(ours))
                    }
                },
                one.faults().map_or_else(nothing, |faults| format!("{faults:.0}")),
                one.peak.map_or_else(nothing, bytes),
            ]);
        }
    }
    output::table(&rows, &[false, true, true, true, true, true, true], 0)
}

/// Our process that took turns with this one.
fn ours<'a, 'b>(measured: &'a [Measured<'b>], one: &Measured<'b>) -> Option<&'a Measured<'b>> {
    measured.iter().find(|other| {
        other.session == one.session
            && other.entry.arch == one.entry.arch
            && other.entry.side == Side::Ours
    })
}

/// PyTorch's fastest process for an architecture.
fn fastest<'a, 'b>(
    measured: &'a [Measured<'b>],
    arch: &str,
    retaining: bool,
) -> Option<&'a Measured<'b>> {
    measured
        .iter()
        .filter(|one| one.entry.arch == arch && one.entry.side != Side::Ours)
        .filter(|one| one.entry.retaining == retaining)
        .min_by(|a, b| a.median().total_cmp(&b.median()))
}

/// The sentences that may be quoted.
pub fn conclusions(measured: &[Measured<'_>]) -> String {
    let mut text = String::new();
    for arch in archs(measured) {
        for (retaining, how) in [(false, "as installed"), (true, "with a retaining allocator")] {
            let Some(best) = fastest(measured, arch, retaining) else { continue };
            let Some(ours) = ours(measured, best) else { continue };
            let name = best.entry.name();
            text += &format!(
                "{arch}: PyTorch's fastest step {how} ({name}) takes {} canonc's time\n",
                times(&best.over(ours))
            );
        }
    }
    let [llama, canon] = ARCHS;
    let first = |arch: &str, side: Side| {
        let wanted = |one: &&Measured<'_>| {
            one.entry.arch == arch && one.entry.side == side && !one.entry.retaining
        };
        measured.iter().find(wanted)
    };
    let share = |ratios: &Spread| {
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        format!(
            "{:.0}% ({:.0}–{:.0}%)",
            percent(ratios.median()),
            percent(ratios.lowest()),
            percent(ratios.highest())
        )
    };
    if let (Some(with), Some(without)) = (first(canon, Side::Ours), first(llama, Side::Ours)) {
        text += &format!("Canon layers add {} to canonc's step", share(&with.over(without)));
        let theirs = (fastest(measured, canon, false), fastest(measured, llama, false));
        if let (Some(with), Some(without)) = theirs {
            text +=
                &format!(" and {} to PyTorch's fastest as installed", share(&with.over(without)));
        }
        text.push('\n');
    }
    for arch in archs(measured) {
        let peak = |side| first(arch, side).and_then(|one| one.peak);
        if let (Some(ours), Some(eager)) = (peak(Side::Ours), peak(Side::Eager)) {
            text += &format!(
                "{arch}: canonc's peak memory is {:.0}% of eager PyTorch's\n",
                100.0 * ours as f64 / eager as f64
            );
        }
    }
    text
}
