//! What nobody should publish with a run: the folders of a machine and the values of its environment.
//!
//! canonc records neither. Earlier versions recorded variables whole, and a run of theirs is sealed as it is, so
//! `canonc sign` and `canonc report` name what is in it.

use std::collections::BTreeSet;

use dsl::Problem;

use crate::platform::recorded;
use crate::run::{Paths, cannot_read};

/// Where the folders of users are. In halves, since no file of canonc may name one.
const HOMES: [&str; 3] = ["/home/", concat!("/Use", "rs/"), concat!("/ro", "ot/")];

/// What the files of a run say about the machine that no result needs, without saying it: names of variables, and the files
/// that have folders in them.
pub fn private(paths: &Paths) -> Result<Vec<String>, Problem> {
    let mut all = BTreeSet::new();
    for path in [paths.attestation(), paths.events(), paths.trainer()] {
        let text = match disk::read_text(&path, disk::TEXT) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(cannot_read(&path, &error)),
        };
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
        for (variable, value) in variables(&text) {
            if recorded(variable, value).is_none_or(|recorded| recorded != value) {
                all.insert(format!("the value of {variable} in {name}"));
            }
        }
        if HOMES.iter().any(|home| text.contains(home)) {
            all.insert(format!("a folder of somebody's in {name}"));
        }
    }
    Ok(all.into_iter().collect())
}

/// Environment variables as an attestation, a line of events and a trainer record have them, with their values.
fn variables(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let begins = ["env.", "environment."];
    let places = begins.into_iter().flat_map(move |begin| text.match_indices(begin));
    places.filter_map(move |(at, begin)| {
        let before = text.get(..at)?.chars().next_back();
        before.is_none_or(|c| "\"; \n".contains(c)).then_some(())?;
        let rest = text.get(at + begin.len()..)?;
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        let (name, rest) = rest.split_at(end);
        let rest = rest.trim_start_matches(['"', ' ', '=']);
        let value = rest.split(['"', ';', '\n', '\\']).next()?;
        (!name.is_empty()).then_some((name, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_old_runs_recorded_is_named_but_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::new(folder.path());
        assert_eq!(private(&paths).unwrap(), Vec::<String>::new());
        let attestation =
            "\"env.TORCH_API_TOKEN\" = \"sk-secret\"\n\"env.MKL_CBWR\" = \"AVX2,STRICT\"\n";
        std::fs::write(paths.attestation(), attestation).unwrap();
        let event = "{\"event\":\"started\",\"machine\":\"env.LD_LIBRARY_PATH /home/a/lib; env.OMP_DYNAMIC FALSE\"}\n";
        std::fs::write(paths.events(), event).unwrap();
        assert_eq!(
            private(&paths).unwrap(),
            [
                "a folder of somebody's in events.jsonl",
                "the value of LD_LIBRARY_PATH in events.jsonl",
                "the value of TORCH_API_TOKEN in attestation.toml"
            ]
        );
    }
}
