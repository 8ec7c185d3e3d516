//! Reads the text of a lock and derives it again.
//!
//! `version` is read before anything else. The lock is rebuilt from its free facts and its arch text alone, and the result must
//! equal the file byte for byte. Any input is answered in bounded time.

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::limits::MAX_SOURCE_BYTES;
use tasks::task::Definition;
use toml::de::DeValue;

use super::text::{VERSION, write, write_without_updates};
use super::{ArchLock, Lock};
use crate::comparison::{Arm, Comparison};
use crate::error::{self, LockError};
use crate::experiment::covered::TRAIN_TAG;
use crate::experiment::{Experiment, LockedArch, check_arm, check_name, line_of};
use crate::facts::{self, Fact};
use crate::field::{self, FieldValue, Fields, Kind, Origin, RULES, shown};
use compiler::digest::Digest;
use compiler::op;

/// Larger files are refused without reading them.
pub const MAX_LOCK_BYTES: usize = 64 << 20;

/// Reads a file with unknown contents.
pub fn read_bytes(name: &str, bytes: &[u8]) -> Result<Lock, LockError> {
    read(name, text_of(bytes)?)
}

/// The text of a file with unknown contents.
pub fn text_of(bytes: &[u8]) -> Result<&str, LockError> {
    if bytes.len() > MAX_LOCK_BYTES {
        return Err(error::too_large(bytes.len(), MAX_LOCK_BYTES));
    }
    std::str::from_utf8(bytes).map_err(|_| error::not_text())
}

/// Reads the text of a lock. `name` is the file name, for messages.
pub fn read(name: &str, text: &str) -> Result<Lock, LockError> {
    if text.len() > MAX_LOCK_BYTES {
        return Err(error::too_large(text.len(), MAX_LOCK_BYTES));
    }
    let source = head(text, "source").map(|(_, value)| short(value.trim_matches('"')));
    let source = source.as_deref();
    if text.starts_with('\u{feff}') {
        return Err(error::byte_order_mark(source));
    }
    check_version(name, text, source)?;
    if let Some(at) = text.find('\r') {
        return Err(error::line_ends(line_of(text, at)));
    }
    let table = facts::parse(text).map_err(|errors| {
        let lines = text.lines().count();
        match errors.first() {
            // An unclosed string or block extends to the end of the file.
            Some(first) => {
                let line = line_of(text, first.at.start);
                let open = text.matches("'''").count() % 2 == 1 || line >= lines;
                if open {
                    error::cut_short(lines, source)
                } else {
                    error::not_toml(line, &first.message)
                }
            }
            None => error::not_a_lock(name),
        }
    })?;
    let (leaves, _) = facts::leaves(&table);
    let reader = FactReader { text, facts: &leaves };
    let lock = reader.lock().map_err(|error| match last_section(text) {
        // If the last section is missing too, the file was truncated.
        Some(last) if error.code == "lock-missing-field" => {
            error::truncated(text.lines().count(), &last, source)
        }
        Some(_) | None => error,
    })?;
    let derived = write(&lock);
    if text != derived && text != write_without_updates(&lock) {
        same(text, &derived, source)?;
    }
    Ok(lock)
}

/// Whether a text is a lock of an earlier version, which this canonc cannot read.
pub fn is_older(text: &str) -> bool {
    version_of(text).is_some_and(|version| version < VERSION)
}

/// Whether a text is a lock of another version, which this canonc cannot read.
pub fn is_of_another_version(text: &str) -> bool {
    version_of(text).is_some_and(|version| version != VERSION)
}

fn version_of(text: &str) -> Option<u32> {
    head(text, "version").and_then(|(_, version)| version.parse().ok())
}

/// The last section of a lock of this kind, if the text lacks it.
fn last_section(text: &str) -> Option<String> {
    let last = match head(text, "kind")?.1 {
        "\"arch\"" => "[manifest]".to_owned(),
        "\"experiment\"" => "[open]".to_owned(),
        _ => {
            let arms = text.lines().filter_map(|line| line.strip_prefix("[arm.")?.split_once('.'));
            format!("[arm.{}.open]", arms.map(|(arm, _)| arm).next_back()?)
        }
    };
    (!text.lines().any(|line| line == last)).then_some(last)
}

/// Finds a fact above the first section without parsing the rest: its line and its value.
fn head<'t>(text: &'t str, key: &str) -> Option<(usize, &'t str)> {
    let above = text.lines().enumerate().take_while(|(_, line)| !line.starts_with('['));
    above
        .filter_map(|(i, line)| {
            Some((i + 1, line.strip_prefix(key)?.trim_start().strip_prefix('=')?))
        })
        .map(|(line, value)| (line, value.trim()))
        .next()
}

fn check_version(name: &str, text: &str, source: Option<&str>) -> Result<(), LockError> {
    match head(text, "version") {
        Some((_, version)) if version == VERSION.to_string() => Ok(()),
        Some((line, version))
            if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) =>
        {
            let version: String = version.chars().take(20).collect();
            Err(error::other_version(line, &version, VERSION, source))
        }
        Some((line, version)) if version.trim_matches(['"', '\'']) == VERSION.to_string() => {
            Err(error::version_as_text(line, version, VERSION))
        }
        Some(_) | None => Err(error::not_a_lock(name)),
    }
}

/// Checks that the file equals the text derived from its own facts.
fn same(text: &str, derived: &str, source: Option<&str>) -> Result<(), LockError> {
    if text == derived {
        return Ok(());
    }
    let (mut section, mut block) = (String::new(), String::new());
    let mut lines = text.split('\n');
    for (i, want) in derived.split('\n').enumerate() {
        let line = i + 1;
        let Some(got) = lines.next() else { return Err(error::truncated(line, want, source)) };
        if got != want {
            // A truncated last line: it is a prefix of the expected one, and nothing follows.
            if lines.clone().next().is_none() && want.starts_with(got) {
                return Err(error::truncated(line, want, source));
            }
            let fact = |line: &str| {
                let (key, value) = line.split_once(" = ")?;
                Some((key.to_owned(), value.to_owned()))
            };
            let facts = fact(got).zip(fact(want)).filter(|_| block.is_empty());
            return Err(match facts {
                Some(((got, written), (want, derived))) if got == want => {
                    let key = format!("{section}{}", want.trim_matches('"'));
                    let (written, derived) = (short(&written), short(&derived));
                    match covered(text, &section, &key) {
                        Some(covers) => error::edited(line, &key, covers, &written, &derived),
                        None => error::differs(line, &key, &written, &derived),
                    }
                }
                Some(_) | None => error::other_line(line, &short(got), &short(want)),
            });
        }
        if !block.is_empty() {
            if want.ends_with("'''") {
                block.clear();
            }
        } else if let Some(name) = want.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name}.");
        } else if let Some(key) = want.strip_suffix(" = '''") {
            block = format!("{section}{key}");
        }
    }
    let line = derived.split('\n').count();
    Err(error::other_line(line, &short(lines.next().unwrap_or("")), ""))
}

/// The part of the file that a wrong digest covers. In an experiment `eval` is listed before `train` and
/// covers it: returns the narrowest part that is wrong.
fn covered(text: &str, section: &str, key: &str) -> Option<&'static str> {
    let prefix = section.strip_suffix("digests.")?;
    let digest = key.rsplit('.').next()?;
    Some(match digest {
        "arch" | "graph" | "manifest" => "the arch's text",
        "eval" => {
            // If the train digest matches [train], the edit is in [eval] itself.
            let lines = |name: &str| {
                let head = format!("\n[{prefix}{name}]\n");
                let body = text.split_once(head.as_str())?.1;
                Some(body.split("\n\n").next().unwrap_or(body).to_owned() + "\n")
            };
            let stands = text.split_once(&format!("\n[{prefix}digests]\n"))?.1;
            let train = stands.lines().find_map(|line| line.strip_prefix("train = "))?;
            let right = Digest::of(TRAIN_TAG, &lines("train")?);
            if train == format!("\"{right}\"") {
                "[eval], or the arch's text,"
            } else {
                "[train], or the arch's text,"
            }
        }
        "platform" => "[platform]",
        "train" => "[train], or the arch's text,",
        "comparison" => "[comparison] with [verdict] and [runs]",
        _ => "the rest of the file",
    })
}

fn short(text: &str) -> String {
    let mut out: String =
        text.chars().take(90).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().nth(90).is_some() {
        out.push('…');
    }
    out
}

/// The facts of one lock, or of one arm of a comparison.
struct FactReader<'a, 'i> {
    text: &'a str,
    facts: &'a [Fact<'a, 'i>],
}

/// Sections with facts that follow from others. They are derived and compared, not read.
const FOLLOWING: [&str; 5] = ["arch.derived.", "arch.free.", "derived.", "digests.", "revisions."];

/// Prefix of the lines in an id that hold the revisions of rules.
const REVISED: &str = "train.revision.";

impl<'a, 'i> FactReader<'a, 'i> {
    fn find(&self, path: &str) -> Option<&Fact<'a, 'i>> {
        let at = self.facts.binary_search_by(|fact| fact.path.as_str().cmp(path)).ok()?;
        self.facts.get(at)
    }

    fn line(&self, fact: &Fact<'_, '_>) -> usize {
        line_of(self.text, fact.key.start)
    }

    fn string(&self, path: &str) -> Result<&'a str, LockError> {
        match self.find(path) {
            Some(Fact { value: DeValue::String(text), .. }) => Ok(text.as_ref()),
            Some(fact) => {
                let message = format!("{} is not a string", shown(fact.value));
                Err(error::bad_fact(self.line(fact), path, &message))
            }
            None => Err(error::missing_fact(path)),
        }
    }

    fn lock(&self) -> Result<Lock, LockError> {
        let (kind, name) = (self.string("kind")?, self.string("name")?.to_owned());
        self.check("name", check_name(&name))?;
        let source = self.string("source")?.to_owned();
        match kind {
            "arch" => {
                self.known("", &["graph.text", "manifest.text"])?;
                self.revisions("", &source)?;
                Ok(Lock::Arch(ArchLock::from_parts(name, source, self.arch("")?)))
            }
            "experiment" => {
                self.known("", &[])?;
                Ok(Lock::Experiment(self.experiment("", name, source)?))
            }
            "comparison" => self.comparison(name, source).map(Lock::Comparison),
            _ => {
                let line = self.find("kind").map_or(1, |fact| self.line(fact));
                Err(error::bad_kind(line, &short(kind)))
            }
        }
    }

    /// Turns the failed check of a fact into an error at its line.
    fn check(&self, path: &str, judged: Result<(), String>) -> Result<(), LockError> {
        judged.map_err(|reason| {
            let line = self.find(path).map_or(1, |fact| self.line(fact));
            error::bad_fact(line, path, &reason)
        })
    }

    /// Refuses unknown facts, so that no line is ignored.
    fn known(&self, prefix: &str, more: &[&str]) -> Result<(), LockError> {
        let of_lock = [
            "kind",
            "name",
            "source",
            "version",
            "arch.name",
            "arch.text",
            "open.text",
            "updates.decayed",
            "updates.groups",
        ];
        for fact in self.facts {
            let Some(path) = fact.path.strip_prefix(prefix) else { continue };
            let field = sections().find_map(|section| path.strip_prefix(section));
            let fits = of_lock.contains(&path)
                || more.contains(&path)
                || path == "cosmetic.budget.given"
                || path == "eval.train"
                || path.starts_with(REVISED)
                || FOLLOWING.iter().any(|section| path.starts_with(section))
                || field.is_some_and(|field| field::find(field).is_some());
            if !fits {
                let suggestion = field.and_then(field::suggest);
                return Err(error::unknown_fact(self.line(fact), &short(path), suggestion));
            }
        }
        Ok(())
    }

    /// Reports primitives and generators with another revision here, before anything is derived.
    fn revisions(&self, prefix: &str, source: &str) -> Result<(), LockError> {
        let section = format!("{prefix}revisions.");
        for fact in self.facts {
            let Some(what) = fact.path.strip_prefix(&section) else { continue };
            let locked = match Kind::Int(0, i64::MAX).read(fact.value) {
                Ok(FieldValue::Int(revision)) => revision,
                Ok(_) => 0,
                Err(reason) => return Err(error::bad_fact(self.line(fact), &fact.path, &reason)),
            };
            let current = match what.split_once('.') {
                Some(("op", name)) => op::find(name).map(|op| i64::from(op.revision)),
                Some(("task", name)) => Definition::find(name).map(|task| task.revision),
                Some(_) | None => None,
            };
            if current != Some(locked) {
                return Err(error::other_revision(&short(what), locked, current, source));
            }
        }
        Ok(())
    }

    /// Reports rules with another revision here than in the lock. A revision that is not written
    /// is 1.
    fn rules(&self, prefix: &str, fields: &Fields, source: &str) -> Result<(), LockError> {
        let section = format!("{prefix}{REVISED}");
        let mut locked: BTreeMap<&str, i64> = BTreeMap::new();
        for fact in self.facts {
            let Some(name) = fact.path.strip_prefix(&section) else { continue };
            match Kind::Int(1, i64::MAX).read(fact.value) {
                Ok(FieldValue::Int(revision)) => locked.insert(name, revision),
                Ok(_) => None,
                Err(reason) => return Err(error::bad_fact(self.line(fact), &fact.path, &reason)),
            };
        }
        for rule in RULES.iter().filter(|rule| rule.applies(fields)) {
            let revision = locked.remove(rule.name).unwrap_or(1);
            if revision != rule.revision {
                let current = Some(rule.revision);
                return Err(error::other_revision(&rule.path(), revision, current, source));
            }
        }
        match locked.first_key_value() {
            Some((name, revision)) => {
                let what = short(&format!("revision.{name}"));
                Err(error::other_revision(&what, *revision, None, source))
            }
            None => Ok(()),
        }
    }

    fn arch(&self, prefix: &str) -> Result<Rc<LockedArch>, LockError> {
        let path = format!("{prefix}arch.name");
        let name = self.string(&path)?;
        self.check(&path, check_name(name))?;
        let text = self.string(&format!("{prefix}arch.text"))?;
        if text.len() > MAX_SOURCE_BYTES {
            return Err(error::broken_arch(&short(name), "the text is too large"));
        }
        LockedArch::from_text(name, text).map(Rc::new).map_err(|e| LockError {
            line: self.find(&format!("{prefix}arch.text")).map(|fact| self.line(fact)),
            ..e
        })
    }

    fn experiment(
        &self,
        prefix: &str,
        name: String,
        source: String,
    ) -> Result<Experiment, LockError> {
        self.revisions(prefix, &source)?;
        let fields = self.fields(prefix)?;
        self.rules(prefix, &fields, &source)?;
        let arch = self.arch(prefix)?;
        Experiment::new(name, source, arch, fields).map_err(error::first)
    }

    fn fields(&self, prefix: &str) -> Result<Fields, LockError> {
        let mut fields = Fields::new();
        for fact in self.facts {
            let Some(path) = fact.path.strip_prefix(prefix) else { continue };
            let Some(path) = sections().find_map(|section| path.strip_prefix(section)) else {
                continue;
            };
            let Some(def) = field::find(path).filter(|def| def.origin != Origin::Derived) else {
                continue;
            };
            match def.kind.read(fact.value) {
                Ok(value) => {
                    fields.insert(path.to_owned(), value);
                }
                Err(reason) => return Err(error::bad_fact(self.line(fact), path, &reason)),
            }
        }
        // A newer field is listed only if its value is not neutral, whatever its default is today.
        for def in field::TABLE.iter() {
            if !fields.contains_key(def.path)
                && def.exists(&fields)
                && let Some(neutral) = field::neutral_of(def)
            {
                fields.insert(def.path.to_owned(), neutral);
            }
        }
        // The id contains steps only; the form that was written is stored separately.
        let given = format!("{prefix}cosmetic.budget.given");
        if self.string(&given)? == "tokens" {
            fields.remove("budget.steps");
            let path = format!("{prefix}derived.budget.tokens");
            let fact = self.find(&path).ok_or_else(|| error::missing_fact(&path))?;
            let tokens = Kind::Int(1, i64::MAX)
                .read(fact.value)
                .map_err(|reason| error::bad_fact(self.line(fact), &path, &reason))?;
            fields.insert("budget.tokens".to_owned(), tokens);
        }
        Ok(fields)
    }

    fn comparison(&self, name: String, source: String) -> Result<Comparison, LockError> {
        let mut names: Vec<&str> = self
            .facts
            .iter()
            .filter_map(|fact| fact.path.strip_prefix("arm.")?.split_once('.'))
            .map(|(arm, _)| arm)
            .collect();
        names.dedup();
        let sections = ["comparison.", "digests.", "runs.", "verdict.", "arm."];
        for fact in self.facts {
            let path = fact.path.as_str();
            let top = ["kind", "name", "source", "version"].contains(&path);
            if !top && !sections.iter().any(|section| path.starts_with(section)) {
                return Err(error::unknown_fact(self.line(fact), &short(path), None));
            }
        }
        let mut arms = Vec::new();
        for arm in names {
            self.check("kind", check_arm(arm))?;
            let prefix = format!("arm.{arm}.");
            self.known(&prefix, &[])?;
            let experiment = self.experiment(&prefix, format!("{name}-{arm}"), source.clone())?;
            arms.push(Arm { name: arm.to_owned(), experiment });
        }
        let facts = self.facts.iter().filter_map(|fact| {
            Some((fact.path.strip_prefix("comparison.")?, fact.value, self.line(fact)))
        });
        Comparison::from_facts(name, source, arms, facts)
    }
}

/// The sections that hold fields of the table.
fn sections() -> impl Iterator<Item = &'static str> {
    ["train.", "eval.", "platform.", "cosmetic."].into_iter()
}
