//! Documents the rules and keys in Markdown, which `canonc audit --list` prints and recipes/AUDIT.md contains.

use lab::field::Absent;

use crate::claims::{ARM_WORDS, NAME_WORDS};
use crate::keys::{self, CANON};
use crate::launchers::{LAUNCH_CHOICES, LAUNCH_COMMANDS, LAUNCH_HARMLESS, LAUNCH_PARTS, LAUNCHERS};
use crate::rules::TABLE as RULES;
use crate::vocabularies::{self, HARMLESS, Meaning, VOCABULARIES};

/// Lists rules, keys and words of names.
pub fn document() -> String {
    let mut out = String::from(
        "### Rules\n\n| rule | severity | finds | why it matters | what to do |\n|---|---|---|---|---|\n",
    );
    for rule in RULES {
        let cells = [rule.checks, rule.reason, rule.help].map(|text| text.trim_end_matches('.'));
        let [checks, why, help] = cells;
        out +=
            &format!("| `{}` | {} | {checks} | {why} | {help} |\n", rule.id, rule.severity.word());
    }
    out += "\n### Keys\n\n| key | class | about | if absent | called |\n|---|---|---|---|---|\n";
    let mut keys: Vec<_> = keys::rows().collect();
    keys.sort_by_key(|key| key.path);
    for key in keys {
        let absent = match key.absent {
            Absent::Unknown => String::new(),
            Absent::Is("") => "none".to_owned(),
            Absent::Is(value) => format!("`{value}`"),
            Absent::Default(value) => format!("`{value}` by default"),
            Absent::As(other) => format!("as `{other}`"),
        };
        let foreign: Vec<String> = match key.path {
            CANON | "arch.mixer.short_conv" => {
                vec!["`model.canon_set`".to_owned()]
            }
            _ => key.foreign.iter().map(|name| format!("`{name}`")).collect(),
        };
        let (class, topic) = (key.class.word(), key.topic.word());
        let foreign = foreign.join(", ");
        out += &format!("| `{}` | {class} | {topic} | {absent} | {foreign} |\n", key.path);
    }
    out += "\n### Launchers\n\n";
    let listed = |keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
        keys.join(", ")
    };
    out +=
        &format!("Sections: {}; parts of them: {}.\n\n", listed(LAUNCHERS), listed(LAUNCH_PARTS));
    out += "Keys in them that change no result (`lingua.launch.*`), and why:\n\n";
    for (reason, keys) in LAUNCH_HARMLESS {
        out += &format!("- {reason}: {}\n", listed(keys));
    }
    out += "\nKeys in them that choose what runs, where, and on what:\n\n";
    for (path, keys) in LAUNCH_CHOICES {
        out += &format!("- `{path}`: {}\n", listed(keys));
    }
    out.push('\n');
    out += &format!(
        "Keys in them that name the program to start (`lingua.command.*`): {}, `*_args`, `*_overrides`. Any other key is unknown.\n",
        listed(LAUNCH_COMMANDS)
    );
    out += &foreign();
    out += "\n### Names\n\n";
    let arms: Vec<String> = ARM_WORDS.iter().map(|word| format!("`{word}`")).collect();
    out += &format!("Words that distinguish arms: {}.\n\n", arms.join(", "));
    let numbers: Vec<String> =
        NAME_WORDS.iter().map(|(word, path)| format!("`{word}0.1` ({path})")).collect();
    out += &format!("Numbers in names: {}.\n", numbers.join(", "));
    out
}

/// The keys of other trainers, by vocabulary and meaning.
fn foreign() -> String {
    let mut out = String::from(
        "\n### Vocabularies\n\n| `--as` | files | recognised by two of |\n|---|---|---|\n",
    );
    let code = |words: &mut dyn Iterator<Item = &str>| {
        words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
    };
    for vocabulary in VOCABULARIES {
        let marks = code(&mut vocabulary.marks.iter().copied());
        out += &format!("| `{}` | {} | {marks} |\n", vocabulary.name, vocabulary.title);
    }
    let common = HARMLESS.iter().map(|(name, _)| *name);
    let common = code(&mut common.into_iter());
    out += &format!("\nIn every file but Lingua's, these are for people: {common}.\n");
    for vocabulary in VOCABULARIES.iter().filter(|vocabulary| !vocabulary.rows.is_empty()) {
        out += &format!("\n#### {}\n\n| meaning | keys |\n|---|---|\n", vocabulary.name);
        for row in vocabulary.rows {
            let meaning = match row.meaning {
                Meaning::Is(path) => format!("`{path}`"),
                Meaning::About(topic) => topic.word().to_owned(),
                Meaning::Harmless(reason) => format!("harmless: {reason}"),
            };
            let key = |entry: &&'static str| match vocabularies::parts(entry) {
                (name, Some(default)) => format!("`{name}` ({default})"),
                (name, None) => format!("`{name}`"),
            };
            let keys: Vec<String> = row.keys.iter().map(key).collect();
            out += &format!("| {meaning} | {} |\n", keys.join(", "));
        }
    }
    out
}
