//! A task's parameters from `NAME=VALUE` texts, in the form of a recipe or a lock. Names and values are those of the
//! published vectors; only the caller reads files.

use dsl::Problem;
use serde_json::{Map, Value};

use tasks::Cause;
use tasks::sample::Mode;
use tasks::task::{Definition, Task, names_where};

/// Parameters from texts such as `N=110`, `multi=true`, `config=cfg3f`, `lens=[1,2]` or `grammar=@own.json`. A value is
/// parsed as JSON, or else taken as text. `@PATH` means a file's content, which `read` returns: JSON, or a list of
/// lines.
pub fn parameters(
    settings: &[impl AsRef<str>],
    mut read: impl FnMut(&str) -> Result<String, Problem>,
) -> Result<Map<String, Value>, Problem> {
    let mut parameters = Map::new();
    for setting in settings {
        let setting = setting.as_ref();
        let Some((name, value)) = setting.split_once('=').filter(|(name, _)| !name.is_empty())
        else {
            return Err(Problem::input(
                format!("`{setting}` does not set a parameter"),
                "write NAME=VALUE, as in N=110",
            ));
        };
        let value = match value.strip_prefix('@') {
            Some("") => {
                return Err(Problem::input(
                    format!("`{setting}` has no file name after the `@`"),
                    format!("write {name}=@FILE, or the value itself without `@`"),
                ));
            }
            Some(path) => from_file(path, &read(path)?)?,
            None => from_text(name, value)?,
        };
        if parameters.insert(name.to_owned(), value).is_some() {
            return Err(Problem::input(format!("`{name}` is set twice"), "set it once"));
        }
    }
    Ok(parameters)
}

fn from_text(name: &str, text: &str) -> Result<Value, Problem> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match serde_json::from_str(text) {
        // JSON would round it silently.
        Ok(Value::Number(number)) if is_whole && number.is_f64() => Err(Problem::input(
            format!("`{name}` is a number with {} digits", digits.len()),
            "a whole number has at most 19 digits",
        )),
        Ok(value) => Ok(value),
        Err(_) => Ok(Value::String(text.to_owned())),
    }
}

/// Reads JSON if the file's name or its first character says so, else a list of lines.
fn from_file(path: &str, text: &str) -> Result<Value, Problem> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) if path.ends_with(".json") || text.trim_start().starts_with('{') => {
            Err(Problem::input(
                format!("`{path}` is not JSON: {error}"),
                "correct the file; for a list of lines, use a name that does not end in .json",
            ))
        }
        Err(_) => {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            Ok(lines.map(|line| Value::String(line.to_owned())).collect())
        }
    }
}

/// The task of that name with these parameters. `QA`, where a task has it, is true for test mode; it is an error if `mode`
/// contradicts it.
pub fn task(
    name: &str,
    mut parameters: Map<String, Value>,
    mode: Option<Mode>,
) -> Result<(Task, Mode), Problem> {
    for (key, value) in &parameters {
        let key = key.as_str();
        let rest = key.strip_prefix("data.").unwrap_or(key).strip_prefix(name);
        if let Some(parameter) = rest.and_then(|rest| rest.strip_prefix('.')) {
            return Err(Problem::input(
                format!("`{key}` is the name in a recipe; here the parameter is `{parameter}`"),
                format!(
                    "write --set {parameter}={}",
                    value.as_str().map_or(value.to_string(), str::to_owned)
                ),
            ));
        }
    }
    let asked = parameters.remove("QA").map(|value| asked_mode(name, &value)).transpose()?;
    if let (Some(asked), Some(mode)) = (asked, mode)
        && asked != mode
    {
        return Err(Problem::input(
            format!("{name}: QA and the mode contradict each other"),
            "remove QA: it means test mode",
        ));
    }
    // A wrong parameter comes before a missing one; if only some are missing, all of them are named at once.
    let required = Definition::find(name).map_or_else(Vec::new, Definition::required);
    let missing: Vec<&str> =
        required.into_iter().filter(|needed| !parameters.contains_key(*needed)).collect();
    let task = Task::parse(name, Value::Object(parameters)).map_err(|error| {
        if missing.len() < 2 || !matches!(error.cause, Cause::Missing(_)) {
            return Problem::from(error);
        }
        let settings: Vec<String> = missing.iter().map(|name| format!("--set {name}=…")).collect();
        Problem::input(
            format!("task `{name}` needs the parameters {}", listed(&missing)),
            format!(
                "add {}; `canonc data generate --help` lists the parameters of every task",
                settings.join(" ")
            ),
        )
    })?;
    Ok((task, mode.or(asked).unwrap_or(Mode::Train)))
}

/// The mode that `QA` asks for.
fn asked_mode(name: &str, value: &Value) -> Result<Mode, Problem> {
    let has_qa = Definition::find(name).is_some_and(|task| task.has_qa);
    match value.as_bool().filter(|_| has_qa) {
        Some(true) => Ok(Mode::Test),
        Some(false) => Ok(Mode::Train),
        None => {
            let with = names_where(|task| task.has_qa).join(" and ");
            Err(Problem::input(
                format!("{name}: QA is {value}, but only {with} has QA, and it is true or false"),
                "remove QA; the mode decides which sizes are drawn",
            ))
        }
    }
}

/// Names as in a sentence.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use support::golden;

    fn no_file(path: &str) -> Result<String, Problem> {
        Err(Problem::input(format!("there is no file `{path}`"), "write another path"))
    }

    #[test]
    fn values_are_json_or_text() {
        let settings = [
            "N=110",
            "multi=true",
            "config=cfg3f",
            "lens=[1,2]",
            "ttype=as",
            "bos=-1",
            "x=a=b",
            "y=",
        ];
        let got = parameters(&settings, no_file).unwrap();
        let want = json!({"N": 110, "multi": true, "config": "cfg3f", "lens": [1, 2], "ttype": "as", "bos": -1,
            "x": "a=b", "y": ""});
        assert_eq!(Value::Object(got), want);
        let files = |path: &str| match path {
            "own.json" => Ok("{\"depth\": 2}".to_owned()),
            "numbers" => Ok("[1, 2]".to_owned()),
            "lines.txt" => Ok("It rains.\r\n\n It snows. \n".to_owned()),
            path => no_file(path),
        };
        let set = ["grammar=@own.json", "lens=@numbers", "background=@lines.txt"];
        let got = parameters(&set, files).unwrap();
        let want = json!({"grammar": {"depth": 2}, "lens": [1, 2], "background": ["It rains.", "It snows."]});
        assert_eq!(Value::Object(got), want);
    }

    #[test]
    fn wrong_settings_say_what_to_write() {
        let read = |path: &str| match path {
            "bad.json" => Ok("It rains.\n".to_owned()),
            "bad" => Ok("{\"depth\": 2,\n".to_owned()),
            path => no_file(path),
        };
        let cases: [(&[&str], &str); 10] = [
            (&["x=@bad.json"], "`bad.json` is not JSON: expected value at line 1"),
            (&["x=@bad"], "`bad` is not JSON: EOF while parsing a value at line 2"),
            (&["N=99999999999999999999"], "`N` is a number with 20 digits"),
            (&["N=-99999999999999999999"], "`N` is a number with 20 digits"),
            (&["N"], "`N` does not set a parameter"),
            (&["=3"], "`=3` does not set a parameter"),
            (&[""], "`` does not set a parameter"),
            (&["N=3", "N=4"], "`N` is set twice"),
            (&["L=@"], "`L=@` has no file name after the `@`"),
            (&["x=@missing"], "no file `missing`"),
        ];
        for (settings, want) in cases {
            let error = parameters(settings, read).unwrap_err();
            assert!(error.message.contains(want) && !error.help.is_empty(), "{error}");
        }
        let mode = |name: &str, setting: &str, mode| {
            let settings = ["N=12", "K=2", "mini_vocab=50", "min_tlen=1", "max_tlen=2", setting];
            task(name, parameters(&settings, no_file).unwrap(), mode)
        };
        assert_eq!(mode("depo", "QA=true", None).unwrap().1, Mode::Test);
        assert_eq!(mode("depo", "QA=false", Some(Mode::Train)).unwrap().1, Mode::Train);
        assert_eq!(mode("depo", "M=3", Some(Mode::Test)).unwrap().1, Mode::Test);
        assert!(
            mode("depo", "QA=true", Some(Mode::Train))
                .unwrap_err()
                .message
                .contains("QA and the mode")
        );
        assert!(mode("depo", "QA=1", None).unwrap_err().message.contains("QA is 1"));
        assert!(mode("brevo", "QA=true", None).unwrap_err().message.contains("only depo has QA"));
    }

    #[test]
    fn all_missing_parameters_are_named_at_once() {
        let error = task("depo", Map::new(), None).unwrap_err();
        assert_eq!(
            error.message,
            "task `depo` needs the parameters K, N, max_tlen, min_tlen and mini_vocab"
        );
        assert!(error.help.starts_with("add --set K=… --set N=… "), "{error}");
        let error = task("mano", Map::new(), None).unwrap_err();
        assert_eq!(error.message, "task `mano` needs the parameter `L`");
        let wrong = parameters(&["n=3"], no_file).unwrap();
        let error = task("depo", wrong, None).unwrap_err();
        assert_eq!(error.message, "task `depo` has no parameter `n`");
    }

    #[test]
    fn the_goldens_parameters_are_taken_as_they_are() {
        for name in ["depo", "brevo", "mano", "lano", "capo"] {
            for case in golden::cases(name) {
                let Some(params) = case["params"].as_object().filter(|_| case["mode"] != "script")
                else {
                    continue;
                };
                let settings: Vec<String> =
                    params.iter().map(|(name, value)| format!("{name}={value}")).collect();
                let (_, mode) = task(name, parameters(&settings, no_file).unwrap(), None).unwrap();
                if name == "depo" {
                    assert_eq!(mode == Mode::Test, case["mode"] == "qa");
                }
            }
        }
    }
}
