//! What a verdict is made of: the arms, their differences with both values and both lines, and the evidence.

use std::fmt;

use toml::de::DeValue;

use crate::experiment::{Experiment, LockedArch, costs};
use crate::field::{self, Class, FieldDef, FieldValue, shown};
use compiler::analyse::Analysis;
use compiler::digest::Digest;

/// The entry of a treatment for every slot of every layer that holds a Canon layer in one arm, and the same or nothing in
/// the other.
pub(super) const CANON: &str = "canon";

/// The trainer that runs the arms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trainer {
    /// Not declared: it may be a trainer that reads every key.
    #[default]
    Any,
    /// canonc, which ignores the keys that it only carries for other trainers.
    Canonc,
    /// PyTorch by `canonc.torch`, which ignores them too.
    Pytorch,
}

impl Trainer {
    /// Words that may be declared.
    pub const WORDS: &'static [&'static str] = &["canonc", "pytorch"];

    /// The declared word, if any.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Trainer::Any => None,
            Trainer::Canonc => Some("canonc"),
            Trainer::Pytorch => Some("pytorch"),
        }
    }

    /// The trainer that this word declares.
    pub fn parse(word: &str) -> Option<Trainer> {
        [Trainer::Canonc, Trainer::Pytorch].into_iter().find(|known| known.word() == Some(word))
    }

    /// Reads the value from a comparison file or its lock.
    pub(crate) fn read(value: &DeValue<'_>) -> Result<Trainer, String> {
        let word = field::string(value).and_then(Trainer::parse);
        word.ok_or_else(|| {
            format!(
                "{} is neither \"canonc\" nor \"pytorch\"; leave it out for any other trainer",
                shown(value)
            )
        })
    }
}

/// One arm.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Name in reports: the arm's, or the lock's.
    pub label: &'a str,
    pub(crate) arch: &'a LockedArch,
    pub(crate) experiment: Option<&'a Experiment>,
    /// For arch locks, which have no experiment to hold costs.
    pub(crate) analysis: Option<&'a Analysis>,
    /// The lock's file name and text.
    pub(crate) file: Option<(&'a str, &'a str)>,
    /// The trainer that runs it.
    pub(crate) trainer: Trainer,
}

/// A line that a reader can open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine {
    /// The lock's file, or the arm's name if there is none.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
}

/// The kind of thing that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A field of the arch. `general` is its path with `*` for the layer; `canon` is true for a slot that holds a Canon
    /// layer or nothing in either arm.
    Cell {
        /// Path with `*` for the layer.
        general: String,
        /// Whether it is a slot with a Canon layer or nothing in either arm.
        canon: bool,
    },
    /// A field of the table.
    Field,
    /// A definition with the same name in both arms.
    Definition,
    /// The arms as a whole.
    Whole,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `arch.layers.0..24.mixer.rope.dims`, `optimizer.lr`, `definition decoder`.
    pub path: String,
    /// The kind of thing.
    pub subject: Subject,
    /// `None` if an arm does not have it.
    pub a: Option<String>,
    /// The second arm's value; None if it does not have it.
    pub b: Option<String>,
    /// Whether each value is a default.
    pub defaults: [bool; 2],
    /// Line of each arm's value.
    pub places: [Option<SourceLine>; 2],
    /// A note: `+0.15%`, `affects training`.
    pub note: String,
}

/// An entry of the treatment and its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The entry as declared: `mixer`, `layers.*.slots.A`.
    pub entry: String,
    /// Number of independent factors among its changes.
    pub factors: usize,
    /// Differences that it covers.
    pub changes: Vec<Change>,
}

/// What the differences of two arms amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No treatment, and no difference that could change a result.
    Identical,
    /// Only the treatment differs.
    Controlled,
    /// Several independent factors and nothing else: an effect cannot be attributed to one of them.
    Bundle(usize),
    /// The number of differences outside the treatment.
    Confounded(usize),
}

/// The evidence: each arm with the other's values at the treatment, and the other arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// First arm a with b's values and arm b, then arm b with a's values and arm a.
    pub replaced: [Replaced; 2],
    /// The second proof, for treatments of slots.
    pub erased: Option<Erased>,
}

/// Digests of an arm with the other's values at the treatment, and of the other arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// `None` if the arm cannot be built with those values.
    pub graph: [Option<Digest>; 2],
    /// Digests of the manifests; None if the arm cannot be built with those values.
    pub manifest: [Option<Digest>; 2],
}

/// Both arms without the slots of the treatment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Erased {
    /// The slots that were emptied.
    pub slots: Vec<String>,
    /// Digests of the graphs.
    pub graph: [Digest; 2],
    /// Digests of the manifests.
    pub manifest: [Digest; 2],
}

impl Erased {
    /// Whether nothing else differs: both digests are equal.
    pub fn equal(&self) -> bool {
        self.graph[0] == self.graph[1] && self.manifest[0] == self.manifest[1]
    }

    pub(super) fn flipped(self) -> Erased {
        let Erased { slots, graph: [a, b], manifest: [c, d] } = self;
        Erased { slots, graph: [b, a], manifest: [d, c] }
    }
}

/// The answer, with all differences by group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Names of the two arms.
    pub labels: [String; 2],
    /// The verdict itself.
    pub outcome: Outcome,
    /// Inputs without a digest that both arms give the same name.
    pub assumed: Vec<String>,
    /// The declared trainer of both arms.
    pub trainer: Trainer,
    /// Who trained the two runs, in words, if their folders were compared and one was trained elsewhere.
    pub trainers: Option<[String; 2]>,
    /// The treatment's entries, each with its changes.
    pub treatment: Vec<Declared>,
    /// Differences outside the treatment that could change a result.
    pub confounds: Vec<Change>,
    /// Differences that follow from the treatment.
    pub consequences: Vec<Change>,
    /// Differences that change rounding only.
    pub platform: Vec<Change>,
    /// Differences that change no result.
    pub cosmetic: Vec<Change>,
    /// Differences between the graphs.
    pub nodes: Vec<NodeChange>,
    /// Names that mean different things in the two arms, or something other than in the standard library.
    pub names: Vec<Namesake>,
    /// Digests that show that nothing but the treatment differs.
    pub proof: Proof,
}

impl<'a> Side<'a> {
    /// One arm of a comparison.
    pub fn arm(name: &'a str, experiment: &'a Experiment) -> Side<'a> {
        let arch = &experiment.arch;
        let (analysis, file, trainer) = (None, None, Trainer::Any);
        Side { label: name, arch, experiment: Some(experiment), analysis, file, trainer }
    }

    /// The same arm, run by a known trainer.
    pub fn run_by(self, trainer: Trainer) -> Side<'a> {
        Side { trainer, ..self }
    }

    /// A derived value.
    pub(super) fn derived(&self, path: &str) -> Option<FieldValue> {
        match (self.experiment, self.analysis) {
            (Some(experiment), _) => experiment.value(path).cloned(),
            (None, Some(analysis)) => costs(analysis).remove(path),
            (None, None) => None,
        }
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl Change {
    /// A difference between the arms as a whole.
    pub(super) fn of_arms(text: String) -> Change {
        Change {
            path: text,
            subject: Subject::Whole,
            a: None,
            b: None,
            defaults: [false, false],
            places: [None, None],
            note: String::new(),
        }
    }

    pub(super) fn note(self, note: &str) -> Change {
        Change { note: note.to_owned(), ..self }
    }

    /// The same difference with the arms in the other order.
    pub(super) fn flipped(self) -> Change {
        let Change { path, subject, a, b, defaults: [one, two], places: [first, second], note } =
            self;
        Change { path, subject, a: b, b: a, defaults: [two, one], places: [second, first], note }
    }

    /// Whether two changes describe one difference.
    pub(super) fn same(&self, other: &Change) -> bool {
        (&self.path, &self.a, &self.b) == (&other.path, &other.a, &other.b)
    }

    /// Whether scores that another trainer measures depend on this field.
    pub fn reaches_scores(&self) -> bool {
        field::find(&self.path).is_some_and(FieldDef::reaches_scores)
    }

    /// Whether only another trainer reads the field.
    pub fn is_carried(&self) -> bool {
        field::find(&self.path).is_some_and(|def| def.class == Class::Carried)
    }
}

/// How the second arm's graph differs in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Only the second arm has it.
    Added,
    /// Only the first arm has it.
    Removed,
    /// Both have it, with other configuration.
    Changed,
}

/// One node difference, with all layers that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeChange {
    /// The kind of difference.
    pub what: What,
    /// `layers.0..24`; empty outside the layers.
    pub layers: String,
    /// A description of the node: `slot A`, `linear mixer.wq`.
    pub node: String,
    /// The number of such nodes in each of the layers.
    pub times: usize,
    /// Configuration in the first arm; None if it has no such node.
    pub a: Option<String>,
    /// Configuration in the second arm; None if it has no such node.
    pub b: Option<String>,
    /// Line of the node in each arm.
    pub places: [Option<SourceLine>; 2],
}

/// The meaning of a name in one arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A primitive of this canonc.
    Primitive {
        /// Revision of its mathematics.
        revision: u32,
    },
    /// A definition in the arm's own text.
    Defined {
        /// `mixer`, `block`, …
        kind: &'static str,
        /// Digest of the definition without names.
        digest: Digest,
        /// How it relates to the own meaning of the name in canonc.
        origin: Origin,
        /// Line of the definition.
        place: SourceLine,
    },
}

/// How a definition relates to canonc's own meaning of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Equal to the standard library's definition.
    Standard,
    /// The standard library defines this name differently.
    OtherThanStandard,
    /// A primitive has this name, and the standard library does not define it.
    OtherThanPrimitive,
    /// Nothing else has this name.
    Own,
}

impl Origin {
    pub(super) fn redefines(self) -> bool {
        match self {
            Origin::OtherThanStandard | Origin::OtherThanPrimitive => true,
            Origin::Standard | Origin::Own => false,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Standard => ", the one in std",
            Origin::OtherThanStandard => ", not the one in std",
            Origin::OtherThanPrimitive => ", not the primitive",
            Origin::Own => "",
        })
    }
}

/// One name and its meaning in each arm; `None` if an arm does not use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namesake {
    /// The name.
    pub name: String,
    /// Its meaning in each arm.
    pub meanings: [Option<Meaning>; 2],
}

impl Namesake {
    /// The name and its meanings in one line; `arms` are the names of the arms.
    pub fn line(&self, arms: [&str; 2]) -> String {
        let Namesake { name, meanings: [a, b] } = self;
        let uses = |arm: &str, meaning: &Meaning| format!("{arm} uses {meaning}");
        match (a, b) {
            (Some(a), Some(b)) if a.same(b) => format!("`{name}`: both use {a}"),
            (a, b) => {
                let both = [a, b].into_iter().zip(arms);
                let each = both.filter_map(|(meaning, arm)| Some(uses(arm, meaning.as_ref()?)));
                format!("`{name}`: {}", each.collect::<Vec<_>>().join("; "))
            }
        }
    }
}

/// A definition in an arch's text under a name that means something else in canonc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redefined {
    /// The name.
    pub name: String,
    /// `mixer`, `block`, …
    pub kind: &'static str,
    /// Digest of the definition without names.
    pub digest: Digest,
    /// Its line in the lock.
    pub line: usize,
    /// What the name means in canonc: the standard library's definition or a primitive.
    pub origin: Origin,
}

impl fmt::Display for Redefined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Redefined { name, kind, digest, line, origin } = self;
        write!(f, "`{name}` is a {kind} of this arch, {}{origin}, on line {line}", digest.short())
    }
}

impl Meaning {
    /// Whether two meanings are equal, wherever they are defined.
    pub fn same(&self, other: &Meaning) -> bool {
        match (self, other) {
            (Meaning::Primitive { .. }, Meaning::Primitive { .. }) => true,
            (Meaning::Defined { digest: a, .. }, Meaning::Defined { digest: b, .. }) => a == b,
            (Meaning::Primitive { .. }, Meaning::Defined { .. })
            | (Meaning::Defined { .. }, Meaning::Primitive { .. }) => false,
        }
    }
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Meaning::Primitive { revision } => write!(f, "the primitive, revision {revision}"),
            Meaning::Defined { kind, digest, origin, place } => {
                write!(f, "{kind} {}{origin}, at {place}", digest.short())
            }
        }
    }
}
