//! Helpers that tests of several crates share: programs and experiments made of texts and files, random architectures, the
//! reference vectors under `tests/golden`.

pub mod archs;
pub mod cases;
pub mod experiments;
pub mod generate;
pub mod golden;
pub mod programs;

/// A folder of its own that a test may write to.
#[macro_export]
macro_rules! scratch {
    ($name:literal) => {{
        let path = std::path::Path::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/", $name));
        std::fs::create_dir_all(path).unwrap();
        path.to_path_buf()
    }};
}
