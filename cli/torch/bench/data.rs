//! `canonc bench data`: the playground's generators on one core.
//!
//! In: nothing. Out: samples per second and, if python3 is available, the ratio to a stand-in for the published Python
//! generators that ran on this machine just before; milliseconds of Lano's parser. Must stay true: a ratio compares two
//! measurements of one run.

use records::progress::rounded;
use runtime::bench::data::{Parsing, Rate, SETTINGS, parsing, rate, stand_in};

use canonc::fail::{Exit, Failure, Outcome};
use canonc::output;

pub(super) fn generators() -> Outcome {
    let stand_in = stand_in();
    let head = ["", "samples/s", "tokens/s", "Python stand-in", "ratio"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for setting in &SETTINGS {
        let Rate { samples, tokens } =
            rate(setting).map_err(|error| Failure::machine(error.to_string()))?;
        let beside = match (stand_in, setting.name) {
            (Some([depo, _]), "depo1 N=375 K=8") => Some(depo),
            (Some([_, mano]), "mano L=10") => Some(mano),
            (Some(_) | None, _) => None,
        };
        let nothing = || "–".to_owned();
        rows.push(vec![
            setting.name.to_owned(),
            rounded(samples),
            rounded(tokens),
            beside.map_or_else(nothing, rounded),
            beside.map_or_else(nothing, |beside| format!("{:.0}×", samples / beside)),
        ]);
    }
    output::data(&output::table(&rows, &[false, true, true, true, true], 0))?;
    let mut rows = vec![
        ["", "tokens", "sentence check", "next-token probabilities"].map(str::to_owned).to_vec(),
    ];
    for config in ["cfg3b", "cfg3f", "cfg3i", "cfg3k"] {
        let Parsing { tokens, membership_ms, law_ms } =
            parsing(config).map_err(|error| Failure::machine(error.to_string()))?;
        rows.push(vec![
            config.to_owned(),
            format!("{tokens:.0}"),
            format!("{membership_ms:.2} ms"),
            format!("{law_ms:.2} ms"),
        ]);
    }
    output::data(&format!("\n{}", output::table(&rows, &[false, true, true, true], 0)))?;
    output::note(
        "one core; the stand-in is our own Python script with as many random draws as the published generator, timed \
         here just now; medians of 15 sentences",
    );
    Ok(Exit::Fine)
}
