//! Helpers that tests of several crates share: programs, experiments and locks made of texts and files, changed fields,
//! random architectures, the reference vectors under `tests/golden`.

pub mod archs;
pub mod cases;
pub mod elsewhere;
pub mod experiments;
pub mod generate;
pub mod golden;
pub mod locks;
pub mod planted;
pub mod programs;
pub mod scripts;

/// The number of cases of a property test or sweep whose full number is `full`: a quarter of it, or `full` times the
/// variable `CANONC_CASES` where that is set (1 for the full number, 10 in nightly runs).
pub fn cases(full: u32) -> u32 {
    match std::env::var("CANONC_CASES") {
        Ok(times) => full * times.parse::<u32>().expect("CANONC_CASES is a whole number"),
        Err(_) => (full / 4).max(1),
    }
}

/// Texts that a careless script would run.
pub const HOSTILE: [&str; 9] = [
    "x\ntouch pwned #",
    "$(touch pwned)",
    "`touch pwned`",
    "a'; touch pwned; '",
    "\"; touch pwned; \"",
    "\\'; touch pwned #",
    "a\rb",
    "-rf",
    "",
];

/// A folder of its own that a test may write to.
#[macro_export]
macro_rules! scratch {
    ($name:literal) => {{
        let path = std::path::Path::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/", $name));
        std::fs::create_dir_all(path).unwrap();
        path.to_path_buf()
    }};
}

/// Copies a folder with all that is in it.
pub fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}
