//! The text that each digest of an experiment covers: the lines of `train` (the id), `eval` and `platform`. A fact that
//! was added after the first locks has no line while it has its neutral value, so that ids do not change.

use std::collections::BTreeMap;

use super::access::text;
use super::parts::Digests;
use crate::field::{Class, FieldValue, Fields, Origin, RULES, RevisedRule, TABLE, UNBOUND};
use crate::section::{Line, lines};
use compiler::digest::Digest;

pub(crate) const TRAIN_TAG: &str = "canonc.train.v1";
const EVAL_TAG: &str = "canonc.eval.v1";
const PLATFORM_TAG: &str = "canonc.platform.v1";

pub(crate) fn of_class(fields: &Fields, class: Class) -> Vec<Line> {
    TABLE
        .iter()
        .filter(|def| def.listed() == class && def.origin == Origin::Free)
        .filter_map(|def| Some((def, fields.get(def.path)?)))
        .filter(|(def, value)| def.enters(value))
        .map(|(def, value)| (def.path.to_owned(), value.to_string()))
        .collect()
}

/// Whether an input has the digest that identifies it.
fn is_bound(fields: &Fields, digest: &str) -> bool {
    !matches!(text(fields, digest), "" | UNBOUND)
}

/// Whether every initial weight comes from a file, so that none is drawn.
pub(crate) fn draws_nothing(fields: &Fields) -> bool {
    text(fields, "init.missing") == "refused"
}

/// A path, and whether the field has no effect, given all fields.
type IdleField = (&'static str, fn(&Fields) -> bool);

/// Semantic fields that can lose their effect on the computation: a name whose digest is known, and the seed of weights of
/// which none is drawn. They are then listed among the cosmetic ones.
const IDLE: [IdleField; 3] = [
    ("data.source", |fields| is_bound(fields, "data.digest")),
    ("init.weights", |fields| is_bound(fields, "init.digest")),
    ("seeds.init", draws_nothing),
];

/// Whether a semantic field has no effect, given the others.
pub(crate) fn is_idle(path: &str, fields: &Fields) -> bool {
    IDLE.iter().any(|(known, idle)| *known == path && idle(fields))
}

/// The facts that change no bit: cosmetic fields, and semantic ones without effect.
pub(crate) fn cosmetic(fields: &Fields) -> Vec<Line> {
    let mut facts = of_class(fields, Class::Cosmetic);
    let mut idle = of_class(fields, Class::Semantic);
    idle.retain(|(path, _)| is_idle(path, fields));
    facts.append(&mut idle);
    facts
}

/// The facts that change the computation: semantic fields (or their derived digests), the budget in
/// steps however it was written, and the revision of each rule that is above 1.
pub(crate) fn train(fields: &Fields, derived: &BTreeMap<&'static str, FieldValue>) -> Vec<Line> {
    train_under(RULES, fields, derived)
}

fn train_under(
    rules: &[RevisedRule],
    fields: &Fields,
    derived: &BTreeMap<&'static str, FieldValue>,
) -> Vec<Line> {
    let mut facts = of_class(fields, Class::Semantic);
    facts.retain(|(path, _)| !is_idle(path, fields));
    for def in TABLE.iter() {
        let enters = def.class == Class::Semantic && def.origin == Origin::Derived;
        if (enters || def.path == "budget.steps")
            && let Some(value) = derived.get(def.path)
        {
            facts.push((def.path.to_owned(), value.to_string()));
        }
    }
    let raised = rules.iter().filter(|rule| rule.applies(fields) && rule.revision != 1);
    facts.extend(raised.map(|rule| (rule.path(), rule.revision.to_string())));
    facts.sort();
    facts
}

/// The measurement, and the id of the training that it measures.
pub(crate) fn eval(fields: &Fields, train: Digest) -> Vec<Line> {
    let mut facts = of_class(fields, Class::Measured);
    facts.push(("train".to_owned(), format!("\"{train}\"")));
    facts
}

pub(super) fn digests(fields: &Fields, derived: &BTreeMap<&'static str, FieldValue>) -> Digests {
    let train = Digest::of(TRAIN_TAG, &lines(&self::train(fields, derived)));
    let eval = Digest::of(EVAL_TAG, &lines(&self::eval(fields, train)));
    let platform = Digest::of(PLATFORM_TAG, &lines(&of_class(fields, Class::Platform)));
    Digests { train, eval, platform }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A raised revision is in the ids that it affects and in no others; revision 1 is in none.
    #[test]
    fn a_rule_enters_the_id_from_its_second_revision_on() {
        for task in ["depo", "mano", "text"] {
            let fields = Fields::from([("data.task".to_owned(), FieldValue::text(task))]);
            let derived = BTreeMap::new();
            let mut first = RULES.to_vec();
            first.iter_mut().for_each(|rule| rule.revision = 1);
            let before = train_under(&first, &fields, &derived);
            assert_eq!(before, [("data.task".to_owned(), format!("\"{task}\""))]);
            for (at, rule) in RULES.iter().enumerate() {
                let mut raised = first.clone();
                raised[at].revision = 2;
                let after = train_under(&raised, &fields, &derived);
                let added: Vec<&Line> =
                    after.iter().filter(|line| !before.contains(line)).collect();
                if rule.name == "text" && task != "text" {
                    assert_eq!(after, before);
                    continue;
                }
                assert_eq!(added, [&(format!("revision.{}", rule.name), "2".to_owned())]);
                assert_ne!(
                    Digest::of(TRAIN_TAG, &lines(&after)),
                    Digest::of(TRAIN_TAG, &lines(&before))
                );
            }
        }
    }
}
