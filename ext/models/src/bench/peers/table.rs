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
pub(super) enum Side {
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
pub(super) struct Entry<'a> {
    pub(super) arch: &'a str,
    pub(super) side: Side,
    /// True also for canonc where it takes turns with such processes.
    pub(super) retaining: bool,
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
pub(super) struct Measured<'a> {
    /// Processes of one session took turns.
    pub(super) session: usize,
    pub(super) entry: Entry<'a>,
    /// By round.
    pub(super) groups: Vec<Group>,
    /// Peak memory in bytes.
    pub(super) peak: Option<u64>,
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
pub(super) fn table(measured: &[Measured<'_>]) -> String {
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
pub(super) fn conclusions(measured: &[Measured<'_>]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn one(session: usize, arch: &'static str, side: Side, rounds: [f64; 3]) -> Measured<'static> {
        let group = |ms: f64| Group { ms: vec![ms, ms + 1.0, ms - 1.0], faults: Some(6) };
        let retaining = session > 0;
        Measured {
            session,
            entry: Entry { arch, side, retaining },
            groups: rounds.map(group).to_vec(),
            peak: Some(if side == Side::Ours { 300 << 20 } else { 900 << 20 }),
        }
    }

    #[test]
    fn ratios_are_of_the_same_session_and_round() {
        let measured = [
            one(0, "llama", Side::Ours, [100.0, 200.0, 100.0]),
            one(0, "llama", Side::Eager, [200.0, 300.0, 190.0]),
            one(0, "llama", Side::Compile, [150.0, 220.0, 140.0]),
            one(0, "llamacanon", Side::Ours, [110.0, 220.0, 120.0]),
            one(0, "llamacanon", Side::Eager, [300.0, 420.0, 300.0]),
            one(1, "llama", Side::Ours, [50.0, 50.0, 50.0]),
            one(1, "llama", Side::Eager, [60.0, 70.0, 80.0]),
        ];
        let table = table(&measured);
        let row = |name: &str| table.lines().find(|line| line.trim().starts_with(name)).unwrap();
        let eager = row("PyTorch eager ");
        for part in ["200 ms", "189 ms", "190–300", "1.90× (1.50–2.00)", " 2 ", "900.0 MiB"] {
            assert!(eager.contains(part), "{part} in {eager}");
        }
        assert!(row("PyTorch eager, retaining").contains("1.40× (1.20–1.60)"), "{table}");
        assert_eq!(
            conclusions(&measured),
            "llama: PyTorch's fastest step as installed (PyTorch compile) takes 1.40× (1.10–1.50) canonc's time\n\
             llama: PyTorch's fastest step with a retaining allocator (PyTorch eager, retaining) takes 1.40× \
             (1.20–1.60) canonc's time\n\
             llamacanon: PyTorch's fastest step as installed (PyTorch eager) takes 2.50× (1.91–2.73) canonc's time\n\
             Canon layers add 10% (10–20%) to canonc's step and 100% (91–114%) to PyTorch's fastest as installed\n\
             llama: canonc's peak memory is 33% of eager PyTorch's\n\
             llamacanon: canonc's peak memory is 33% of eager PyTorch's\n"
        );
    }
}
