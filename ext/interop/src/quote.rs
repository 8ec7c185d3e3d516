//! Quoting for generated scripts and documents: a text never ends the line, the word or the comment that it is put into.

use minijinja::Environment;

/// Adds the template filters: `sh`, a word of a POSIX shell; `word`, a word that needs no quotes; `line`, one line;
/// `docstring`, a line of a Python text in triple quotes.
pub(super) fn add_filters(environment: &mut Environment<'_>) {
    environment.add_filter("sh", |text: String| sh(&text));
    environment.add_filter("word", |text: String| word(&text));
    environment.add_filter("line", |text: String| line(&text));
    environment.add_filter("docstring", |text: String| docstring(&text));
}

/// A word of a POSIX shell. Inside single quotes only a single quote is special.
pub fn sh(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%,:=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    // A shell ends a text at a NUL, also inside quotes.
    format!("'{}'", text.replace('\0', "").replace('\'', "'\\''"))
}

/// Letters, digits, `_`, `-` and `.`; anything else becomes `_`. `sbatch` reads quotes by rules of its own.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    text.chars().map(|c| if plain(c) { c } else { '_' }).collect()
}

fn line(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    text.chars().map(|c| if breaks(c) { ' ' } else { c }).collect()
}

/// Three double quotes end such a text, and a backslash starts an escape.
fn docstring(text: &str) -> String {
    line(text).replace('\\', "\\\\").replace("\"\"\"", "\\\"\\\"\\\"")
}

/// Texts that a careless script would run, for tests.
#[cfg(test)]
pub(super) const HOSTILE: [&str; 9] = [
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

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_shell_reads_back_the_very_text() {
        let folder = tempfile::tempdir().unwrap();
        for text in HOSTILE {
            let script = format!("printf %s {}", sh(text));
            let ran = std::process::Command::new("sh")
                .args(["-c", &script])
                .current_dir(folder.path())
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&ran.stdout), text, "{script}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn a_hostile_name_in_a_script_runs_nothing() {
        let template = include_str!("../templates/lingua.sh.j2");
        let mut environment = Environment::new();
        add_filters(&mut environment);
        let folder = tempfile::tempdir().unwrap();
        for name in HOSTILE {
            let values = context! { name, id => "0", devices => 8, per_node => 8, nodes => 1 };
            let script = environment.render_str(template, values).unwrap();
            let lines = script.lines().count();
            assert_eq!(lines, template.lines().count(), "{script}");
            let path = folder.path().join("launch.sh");
            std::fs::write(&path, &script).unwrap();
            let sh = |arguments: &[&str]| {
                let mut command = std::process::Command::new("sh");
                command.args(arguments).arg(&path).current_dir(folder.path());
                command.output().unwrap()
            };
            assert!(sh(&["-n"]).status.success(), "{script}");
            // Outside a job the script stops at its first check; nothing before that may run.
            sh(&[]);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{script}");
        }
    }
}
