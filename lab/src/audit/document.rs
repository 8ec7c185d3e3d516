//! Documents the rules and keys, generated from the tables that the audit uses.
//!
//! In: the tables. Out: Markdown, which `canonc audit --list` prints and recipes/AUDIT.md contains. Must stay
//! true: the documentation is generated from the rules that run.

use crate::field::{LAUNCH_COMMANDS, LAUNCH_KEYS, LAUNCH_LISTS, LAUNCH_PARTS, LAUNCHERS};

use super::claims::{ARM_WORDS, NAME_WORDS};
use super::rules::TABLE as RULES;
use super::vocabulary::{self, Absent};

/// Lists rules, keys and words of names.
pub fn document() -> String {
    let mut out = String::from(
        "### Rules\n\n| rule | severity | finds | why it matters | what to do |\n|---|---|---|---|---|\n",
    );
    for rule in RULES {
        let cells = [rule.checks, rule.why, rule.help].map(|text| text.trim_end_matches('.'));
        let [checks, why, help] = cells;
        out +=
            &format!("| `{}` | {} | {checks} | {why} | {help} |\n", rule.id, rule.severity.word());
    }
    out += "\n### Keys\n\n| key | class | about | if absent | called |\n|---|---|---|---|---|\n";
    let mut keys: Vec<_> = vocabulary::rows().collect();
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
            super::vocabulary::CANON | "arch.mixer.short_conv" => {
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
    out += &format!(
        "Keys in them that affect nothing (`lingua.launch.*`): {}; and everything below these: {}.\n\n",
        listed(LAUNCH_KEYS),
        listed(LAUNCH_LISTS)
    );
    out += &format!(
        "Keys in them that name the program to start (`lingua.command.*`): {}, `*_args`, `*_overrides`. Any other key is unknown.\n",
        listed(LAUNCH_COMMANDS)
    );
    out += "\n### Names\n\n";
    let arms: Vec<String> = ARM_WORDS.iter().map(|word| format!("`{word}`")).collect();
    out += &format!("Words that distinguish arms: {}.\n\n", arms.join(", "));
    let numbers: Vec<String> =
        NAME_WORDS.iter().map(|(word, path)| format!("`{word}0.1` ({path})")).collect();
    out += &format!("Numbers in names: {}.\n", numbers.join(", "));
    out
}
