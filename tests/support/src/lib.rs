//! Helpers that tests of several crates share: programs, experiments and locks made of texts and files, changed fields,
//! random architectures, the reference vectors under `tests/golden`.

pub mod archs;
pub mod cases;
pub mod experiments;
pub mod generate;
pub mod golden;
pub mod locks;
pub mod planted;
pub mod programs;

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

/// How many cases a property test tries of `full`: a quarter, or `full` times `CANONC_CASES` if that is set.
pub fn cases(full: u32) -> u32 {
    let times = std::env::var("CANONC_CASES").ok().and_then(|times| times.parse::<u32>().ok());
    times.map_or(full / 4, |times| full.saturating_mul(times)).max(1)
}

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
