//! Scores generated texts. Stop texts, filters and comparison are those of lm-evaluation-harness
//! (`lm_eval/models/huggingface.py`, `generate_until`; `lm_eval/filters/`; `lm_eval/api/metrics.py`,
//! `exact_match_hf_evaluate`).

use regex::Regex;

use crate::suite::{Filter, Task};

/// The text before the first stop text.
pub fn cut<'a>(text: &'a str, until: &[String]) -> &'a str {
    until.iter().fold(text, |text, stop| text.split(stop.as_str()).next().unwrap_or_default())
}

/// The text that is compared.
pub fn filtered(task: &Task, text: &str) -> String {
    let mut text = cut(text, &task.until).to_owned();
    for filter in &task.filters {
        text = match filter {
            Filter::RemoveWhitespace => text.strip_prefix(' ').unwrap_or(&text).to_owned(),
            Filter::Lowercase => text.to_lowercase(),
            Filter::Uppercase => text.to_uppercase(),
            Filter::Regex { pattern, select, fallback } => {
                selected_match(pattern, *select, &text).unwrap_or_else(|| fallback.clone())
            }
        };
    }
    text
}

/// The match of a pattern that `select` chooses, as by Python's `findall` and the harness's `RegexFilter`.
fn selected_match(pattern: &str, select: i64, text: &str) -> Option<String> {
    // Reading the suite has checked that every pattern compiles.
    let pattern = Regex::new(pattern).ok()?;
    let all: Vec<regex::Captures<'_>> = pattern.captures_iter(text).collect();
    let index = match select {
        0.. => usize::try_from(select).ok()?,
        _ => all.len().checked_sub(usize::try_from(select.unsigned_abs()).ok()?)?,
    };
    let groups = all.get(index)?;
    let group = match groups.len() {
        1 => groups.get(0).map(|matched| matched.as_str()),
        2 => Some(groups.get(1).map_or("", |group| group.as_str())),
        _ => groups
            .iter()
            .skip(1)
            .flatten()
            .map(|group| group.as_str())
            .find(|text| !text.is_empty()),
    };
    group.map(|text| text.trim().to_owned())
}

/// Whether a filtered text equals an expected one.
pub fn equals(task: &Task, text: &str, expected: &[String]) -> bool {
    let ignored: Vec<Regex> = task.ignore.iter().filter_map(|p| Regex::new(p).ok()).collect();
    let normal = |text: &str| {
        let mut text = text.to_owned();
        for pattern in &ignored {
            text = pattern.replace_all(&text, "").into_owned();
        }
        if task.ignore_case {
            text = text.to_lowercase();
        }
        text.retain(|c| {
            !(task.ignore_punctuation && c.is_ascii_punctuation()
                || task.ignore_numbers && c.is_ascii_digit())
        });
        text
    };
    let text = normal(text);
    expected.iter().any(|expected| normal(expected) == text)
}

/// Whether a text contains an expected one, ignoring case.
pub fn contains(text: &str, expected: &[String]) -> bool {
    let text = text.to_lowercase();
    expected.iter().any(|expected| text.contains(&expected.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Suite;

    fn task(more: &str) -> Task {
        let text = format!(
            "[[task]]\nname = \"t\"\nkind = \"generate\"\nfile = \"q\"\nprompt = \"p\"\nanswer = \"a\"\nuntil = [\"\\n\", \".\"]\n{more}"
        );
        Suite::read("s.toml", &text).unwrap().tasks.remove(0)
    }

    #[test]
    fn texts_are_cut_filtered_and_compared() {
        let plain = task("");
        assert_eq!(filtered(&plain, " Paris. Then\nmore"), " Paris");
        assert!(!equals(&plain, " Paris", &["Paris".into()]));
        let kind = task(
            "filters = [\"remove_whitespace\"]\nignore_case = true\nignore_punctuation = true\n",
        );
        assert!(equals(&kind, &filtered(&kind, " par-is\n"), &["London".into(), "Paris!".into()]));
        assert!(contains("It is PARIS", &["paris".into()]));
    }

    #[test]
    fn a_pattern_selects_as_in_python() {
        let at = |select: i64| {
            format!(
                "filters = [{{ regex = {{ pattern = \"#### (\\\\d+)|(x)\", select = {select} }} }}]\n"
            )
        };
        let task = |select| task(&at(select));
        let text = "#### 1 x #### 22";
        for (select, wanted) in
            [(0, "1"), (1, "x"), (-1, "22"), (-3, "1"), (3, "[invalid]"), (-4, "[invalid]")]
        {
            let mut task = task(select);
            task.until.clear();
            assert_eq!(filtered(&task, text), wanted, "{select}");
        }
    }
}
