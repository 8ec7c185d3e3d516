//! The log of a run that another engine trained, and canonc's measurements of its weights.
//!
//! The engine writes the log: any decimal form of a number counts, so a line is read by its members, which are these and in
//! this order. canonc writes the measurements, so their text is exactly its own.

use std::fmt;
use std::path::Path;

use compiler::digest::Digest;
use compiler::plan::TERMS;
use dsl::Problem;
use lab::trainer::may_change;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::record::{Evaluation, Members, Record, Start, Step};
use super::{Read, chain, read_lines, with_chain, without_chain};

const LOG_TAG: &str = "canonc.external.v1";
const MEASUREMENTS_TAG: &str = "canonc.external-evaluations.v1";
/// The version of the first line that this canonc reads.
const VERSION: u64 = 1;

/// The first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalStart {
    /// The lock's id.
    pub lock: Digest,
    /// The lock's `eval` digest.
    pub eval: Digest,
    /// Digest of every initial parameter.
    pub initial: Digest,
    /// Digest of the trainer record.
    pub trainer: Digest,
}

/// The log of a run that another engine trained.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalLog {
    /// The first line.
    pub start: ExternalStart,
    /// The steps, in the order of their lines.
    pub steps: Vec<Step>,
    /// Processes that went on with the run elsewhere or on another number of ranks.
    pub resumed: Vec<Resumed>,
    /// The chain after the start, then after each step.
    pub heads: Vec<Digest>,
    /// The chain of the last line, whatever it is, and the number of lines.
    pub end: (Digest, u64),
    /// An incomplete last line, of an engine that ended while it wrote or is writing now.
    pub torn: Option<String>,
}

/// A process that went on with a run after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The step; 0 before the first.
    pub step: u64,
    /// The keys of the trainer record that differ from then on, and their values.
    pub changes: Vec<(String, String)>,
}

impl ExternalLog {
    /// The records that canonc's own log would have: with these evaluations, each after its step.
    pub fn records(&self, measured: &[MeasuredWeights]) -> Vec<Record> {
        let ExternalStart { lock, eval, initial, trainer: _ } = self.start;
        let mut records = vec![Record::Start(Start { lock, eval, initial })];
        for step in &self.steps {
            records.push(Record::Step(step.clone()));
            let of_step = measured.iter().filter(|one| one.evaluation.step == step.step);
            records.extend(of_step.map(|one| Record::Evaluation(one.evaluation.clone())));
        }
        records
    }
}

/// An evaluation by canonc of weights that another engine trained.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredWeights {
    /// Its results.
    pub evaluation: Evaluation,
    /// Digest of the weights.
    pub weights: Digest,
}

/// All of them, in the order of steps, and the last chain; `None` without any.
pub type Measurements = (Vec<MeasuredWeights>, Option<Digest>);

/// Reads the log of a run that another engine trained.
pub fn read_external(path: &Path) -> Result<ExternalLog, Problem> {
    let Read { heads, lines, complete: _, torn, has_zeros: _ } = read_lines(path, LOG_TAG)?;
    let altered = |at: usize, why: &str| {
        Problem::finding(
            format!("line {} of {} {why}", at + 1, path.display()),
            "docs/files.md has the form of each line; restore the file from a copy",
        )
    };
    let mut start = None;
    let mut steps: Vec<Step> = Vec::with_capacity(lines.len());
    let (mut resumed, mut of_steps) = (Vec::new(), Vec::with_capacity(lines.len()));
    let last = heads.last().copied();
    for (at, (line, head)) in lines.iter().zip(heads).enumerate() {
        let members: Line = serde_json::from_str(line)
            .map_err(|error| altered(at, &format!("is not an object: {error}")))?;
        let refused = |why: String| altered(at, &why);
        match (at, members.kind()) {
            (0, _) => start = Some(start_of(&members).map_err(refused)?),
            (_, "resumed") => {
                let after = steps.last().map_or(0, |step| step.step);
                resumed.push(resumed_after(&members, after).map_err(refused)?);
                continue;
            }
            _ => steps.push(step_of(&members).map_err(refused)?),
        }
        of_steps.push(head);
    }
    let (Some(start), Some(last)) = (start, last) else {
        return Err(Problem::finding(
            format!("{} has no first line of kind \"external\"", path.display()),
            "docs/files.md has the form of each line; restore the file from a copy",
        ));
    };
    let end = (last, lines.len() as u64);
    Ok(ExternalLog { start, steps, resumed, heads: of_steps, end, torn })
}

/// Reads canonc's measurements.
pub fn read_measurements(path: &Path) -> Result<Measurements, Problem> {
    let Read { heads, lines, complete: _, torn, has_zeros: _ } =
        read_lines(path, MEASUREMENTS_TAG)?;
    let altered = |number: usize| {
        Problem::finding(
            format!("line {number} of {} is not as canonc writes it", path.display()),
            "delete the file and attestation.toml: `canonc record` writes both again",
        )
    };
    if torn.is_some() {
        return Err(altered(lines.len() + 1));
    }
    let mut measured = Vec::with_capacity(lines.len());
    for (number, line) in (1..).zip(&lines) {
        let one = measurement_of(line).ok_or_else(|| altered(number))?;
        measured.push(one);
    }
    Ok((measured, heads.last().copied()))
}

/// The text of a file of measurements, and its last chain.
pub fn measurements_text(measured: &[MeasuredWeights]) -> (String, Option<Digest>) {
    let (mut text, mut head) = (String::new(), None);
    for one in measured {
        let body = one.text();
        let next = chain(MEASUREMENTS_TAG, head, &body);
        text.push_str(&with_chain(&body, next));
        text.push('\n');
        head = Some(next);
    }
    (text, head)
}

impl MeasuredWeights {
    /// The line without its chain.
    fn text(&self) -> String {
        let text = Record::Evaluation(self.evaluation.clone()).text();
        let open = text.strip_suffix('}').unwrap_or(&text);
        format!("{open},\"weights\":\"{}\"}}", self.weights)
    }
}

fn measurement_of(line: &str) -> Option<MeasuredWeights> {
    let value: Value = serde_json::from_str(line).ok()?;
    let members = Members(&value);
    if value.get("kind")?.as_str()? != "eval" {
        return None;
    }
    let one =
        MeasuredWeights { evaluation: members.evaluation()?, weights: members.digest("weights")? };
    let (body, _) = without_chain(line)?;
    (one.text() == body).then_some(one)
}

/// The members of a line, in its order; one that occurs twice is refused.
struct Line(Vec<(String, Value)>);

impl Line {
    /// The members without the chain, if their names are these, in this order.
    fn object(&self, names: &[&str]) -> Result<Value, String> {
        let written: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        let wanted: Vec<&str> = names.iter().copied().chain(["chain"]).collect();
        if written != wanted {
            return Err(format!(
                "has the members {}, but should have {}",
                written.join(", "),
                wanted.join(", ")
            ));
        }
        Ok(Value::Object(self.0.iter().cloned().collect::<Map<String, Value>>()))
    }

    fn kind(&self) -> &str {
        self.0.first().and_then(|(_, value)| value.as_str()).unwrap_or("none")
    }
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Line, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Line;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Line(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

fn start_of(line: &Line) -> Result<ExternalStart, String> {
    let value = line.object(&["kind", "version", "lock", "eval", "initial", "trainer"])?;
    if line.kind() != "external" {
        return Err(format!("is of kind \"{}\", but a log begins with \"external\"", line.kind()));
    }
    let members = Members(&value);
    if members.count("version") != Some(VERSION) {
        let version = value.get("version").cloned().unwrap_or_default();
        return Err(format!("has version {version}, but this canonc reads version {VERSION}"));
    }
    let digest = |name: &str| {
        members
            .digest(name)
            .ok_or_else(|| format!("has no digest of 64 lower-case digits as `{name}`"))
    };
    Ok(ExternalStart {
        lock: digest("lock")?,
        eval: digest("eval")?,
        initial: digest("initial")?,
        trainer: digest("trainer")?,
    })
}

fn resumed_after(line: &Line, last: u64) -> Result<Resumed, String> {
    let value = line.object(&["kind", "step", "changes"])?;
    let step = Members(&value).count("step");
    if step != Some(last) {
        return Err(format!("goes on after another step than {last}, the one before it"));
    }
    let Some(changes) = value.get("changes").and_then(Value::as_object) else {
        return Err("has no object `changes`".to_owned());
    };
    if let Some(key) = changes.keys().find(|key| !may_change(key)) {
        return Err(format!("changes `{key}`, which must be the same in a whole run"));
    }
    let text = |value: &Value| match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_null() => "nothing".to_owned(),
        None => value.to_string(),
    };
    let changes = changes.iter().map(|(key, value)| (key.clone(), text(value))).collect();
    Ok(Resumed { step: last, changes })
}

fn step_of(line: &Line) -> Result<Step, String> {
    if line.kind() != "step" {
        return Err(format!(
            "is of kind \"{}\", but after the first each is a \"step\"",
            line.kind()
        ));
    }
    let mut names = vec!["kind", "step", "loss", "grad_norm", "lr", "batch", "counted"];
    let has = |name: &str| line.0.iter().any(|(member, _)| member == name);
    names.extend(TERMS.iter().filter(|name| has(name)));
    let value = line.object(&names)?;
    let step = Members(&value).step();
    step.ok_or_else(|| {
        "has a value of another kind: `step` and `counted` are whole numbers, `loss` is null only where nothing counts, \
         `batch` is a digest or null, and the others are numbers or \"NaN\", \"inf\", \"-inf\""
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(of: &str) -> Digest {
        Digest::of("test", of)
    }

    fn log(bodies: &[String]) -> Result<ExternalLog, Problem> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let (mut text, mut head) = (String::new(), None);
        for body in bodies {
            let next = chain(LOG_TAG, head, body);
            text.push_str(&with_chain(body, next));
            text.push('\n');
            head = Some(next);
        }
        std::fs::write(&path, text).unwrap();
        read_external(&path)
    }

    fn start() -> String {
        let [lock, eval, initial, trainer] = ["lock", "eval", "initial", "trainer"].map(digest);
        format!(
            r#"{{"kind":"external","version":1,"lock":"{lock}","eval":"{eval}","initial":"{initial}","trainer":"{trainer}"}}"#
        )
    }

    fn step(members: &str) -> String {
        format!(r#"{{"kind":"step",{members}}}"#)
    }

    #[test]
    fn any_decimal_form_of_a_number_is_its_double() {
        let line = |lr: &str| {
            step(&format!(
                r#""step":1,"loss":2.5,"grad_norm":"inf","lr":{lr},"batch":null,"counted":3"#
            ))
        };
        for lr in ["5e-05", "5e-5", "0.00005", "5.0E-5"] {
            let read = log(&[start(), line(lr)]).unwrap();
            assert_eq!(read.steps[0].lr.to_bits(), 5e-5_f64.to_bits(), "{lr}");
            assert_eq!((read.steps[0].batch, read.steps[0].loss), (None, Some(2.5)));
            assert_eq!(read.start.trainer, digest("trainer"));
            assert_eq!(read.heads.len(), 2);
        }
    }

    #[test]
    fn a_line_of_another_form_is_refused_with_its_number() {
        let good = r#""step":1,"loss":2.5,"grad_norm":1,"lr":0.1,"batch":null,"counted":3"#;
        for (body, reason) in [
            (step(&format!(r#"{good},"mine":1"#)), "line 2"),
            (step(&format!(r#"{good},"step":1"#)), "has the members"),
            (step(&good.replace("2.5", "null")), "has a value of another kind"),
            (
                step(&good.replace("\"counted\":3", "\"counted\":3.5")),
                "has a value of another kind",
            ),
            (
                step(&good.replace(r#""lr":0.1,"batch":null"#, r#""batch":null,"lr":0.1"#)),
                "has the members",
            ),
            (format!(r#"{{"kind":"eval",{good}}}"#), "is of kind \"eval\""),
        ] {
            let error = log(&[start(), body]).unwrap_err();
            assert!(error.message.contains(reason), "{error}");
        }
        let error = log(&[start().replace("\"version\":1", "\"version\":2")]).unwrap_err();
        assert!(
            error.message.contains("has version 2, but this canonc reads version 1"),
            "{error}"
        );
        let error = log(&[]).unwrap_err();
        assert!(error.message.contains("has no first line"), "{error}");
    }

    #[test]
    fn canonc_s_own_log_is_not_one_of_another_engine_nor_the_reverse() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let (lock, eval, initial) = (digest("lock"), digest("eval"), digest("initial"));
        let own = Record::Start(Start { lock, eval, initial });
        let faults = crate::fault::Faults::none();
        super::super::Log::open(&path).unwrap().append(&own, &faults).unwrap();
        assert!(read_external(&path).is_err());
        let head = chain(LOG_TAG, None, &start());
        std::fs::write(&path, format!("{}\n", with_chain(&start(), head))).unwrap();
        assert!(super::super::read(&path).is_err());
    }
}
