//! `canonc compare --to slurm`: a script whose machines do the missing runs of comparisons.

use std::path::{Path, PathBuf};

use lab::comparison::Comparison;
use lab::experiment::Device;
use records::run::Paths;

use super::CompareArgs;
use crate::fail::{Exit, Failure, Outcome, shown};
use crate::finished_runs::FinishedRuns;
use crate::launch::Array;
use crate::ranks::utf8;
use crate::{interim_looks, out, output};

/// Prints a script whose machines do the missing runs of these comparisons.
pub(super) fn array(args: &CompareArgs, comparisons: &[Comparison]) -> Outcome {
    let (mut missing, mut gpu, mut threads) = (0, false, None);
    let finished = FinishedRuns::under(&args.dir);
    for comparison in comparisons {
        let finished = finished.of_trainer(comparison.trainer);
        let folder = out::named(&args.dir, &comparison.name, "")?;
        let (due, _) = interim_looks::due(comparison, &folder, &finished)?;
        for run in due {
            let platform = &run.experiment.platform;
            if let Some(devices @ 2..) = platform.devices {
                return Err(Failure::bad_input(format!(
                    "`{}` has platform.devices = {devices}, but a machine of the array trains with one process",
                    run.experiment.name
                ))
                .help("write a script for each of its runs: `canonc export LOCK --to slurm`"));
            }
            let run_folder = finished.folder(&folder, &run.experiment)?;
            if !Paths::new(&run_folder).is_attested()? {
                missing += 1;
                gpu |= platform.device == Device::Cuda;
                threads = threads.max(platform.threads);
            }
        }
    }
    let mut words = args.locks.iter().map(|lock| words_of(lock)).collect::<Result<Vec<_>, _>>()?;
    words.extend(["--dir".to_owned(), words_of(&args.dir)?]);
    words.extend(["--lease".to_owned(), args.lease.to_string()]);
    for (option, path) in args.given().options() {
        words.extend([option.to_owned(), words_of(path)?]);
    }
    if missing == 0 {
        return Err(Failure::bad_input("no run is missing, so there is nothing for Slurm to do")
            .help(format!("`canonc compare {}` prints the results", shown(&args.locks[0]))));
    }
    let name = comparisons.first().map_or("compare", |comparison| comparison.name.as_str());
    let workers = args.workers.unwrap_or(missing).clamp(1, missing);
    let array = Array { name, missing, workers, words: &words, gpu, threads };
    output::exact(&array.script()?)?;
    Ok(Exit::Fine)
}

fn words_of(path: &Path) -> Result<String, Failure> {
    // A path that begins with a hyphen would be read as an option.
    let path = if path.as_os_str().as_encoded_bytes().first() == Some(&b'-') {
        PathBuf::from(".").join(path)
    } else {
        path.to_owned()
    };
    utf8(&path).map(str::to_owned)
}
