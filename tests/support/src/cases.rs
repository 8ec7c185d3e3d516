//! One snapshot for each case of a test.

use std::collections::BTreeSet;
use std::path::Path;

/// The names of the snapshots of one folder.
#[derive(Debug, Default)]
pub struct Names {
    taken: BTreeSet<String>,
}

impl Names {
    /// A file name for a case: its words, with a number if an earlier case has the same.
    pub fn name(&mut self, case: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' };
        let words: String = case.chars().map(plain).collect();
        let words: Vec<&str> = words.split_whitespace().collect();
        let mut name: String = words.join("_").chars().take(80).collect();
        if self.taken.contains(&name) {
            name = format!("{name}_{}", self.taken.len());
        }
        assert!(self.taken.insert(name.clone()), "{case}");
        name
    }

    /// Fails if the folder has a snapshot of a case that is gone.
    pub fn are_all_of(&self, folder: &Path) {
        for entry in
            std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let known = name.strip_suffix(".snap").is_none_or(|name| self.taken.contains(name));
            assert!(known, "{}/{name} belongs to no case: delete it", folder.display());
        }
    }
}

/// Asserts a snapshot for each `(name, text)` of a list, in the folder `snapshots/FOLDER` beside the test's file, and
/// that the folder has no others. `DIR` is the path of the test's folder in its package.
#[macro_export]
macro_rules! assert_cases {
    ($dir:literal, $folder:literal, $cases:expr) => {{
        let mut names = $crate::cases::Names::default();
        for (case, text) in &$cases {
            let case: &str = case.as_ref();
            insta::with_settings!({
                snapshot_path => concat!("snapshots/", $folder),
                prepend_module_to_snapshot => false,
                omit_expression => true,
                description => case,
            }, {
                insta::assert_snapshot!(names.name(case), text);
            });
        }
        names.are_all_of(std::path::Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"), "/", $dir, "/snapshots/", $folder
        )));
    }};
}
