//! Reasons why a treatment cannot be judged for two arms, one constructor each.

use super::model::Side;

/// Why a treatment or a pair of locks cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A stable word, `kebab-case`.
    pub code: &'static str,
    /// What is wrong, on one line.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

fn refusal(code: &'static str, message: String, help: impl Into<String>) -> Refusal {
    Refusal { code, message, help: help.into() }
}

impl Refusal {
    pub(super) fn unknown(entry: &str, nearest: Option<&str>) -> Refusal {
        let message = format!("treatment `{entry}`: neither arm has such a field");
        let help = match nearest {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => "write `canon`, a field of the lock such as `optimizer.lr`, or a field of every layer such as `rope.dims`".to_owned(),
        };
        refusal("unknown-treatment", message, help)
    }

    /// The name of a section, which may also be the last word of a field.
    pub(super) fn section(entry: &str, fields: &[&str], differing: &[&str]) -> Refusal {
        let quoted = |paths: &[&str]| {
            paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ")
        };
        let message = match fields {
            [] => format!("treatment `{entry}` is a section, not a field"),
            fields => {
                format!("treatment `{entry}` means {} or the section [{entry}]", quoted(fields))
            }
        };
        let help = match (fields, differing) {
            ([], []) => format!("leave it out: the arms do not differ in [{entry}]"),
            ([], differing) => format!("write the fields that differ: {}", quoted(differing)),
            (fields, []) => {
                format!("write {}; the arms do not differ in [{entry}]", quoted(fields))
            }
            (fields, differing) => format!(
                "write {}, or the fields of [{entry}] that differ: {}",
                quoted(fields),
                quoted(differing)
            ),
        };
        refusal("section-treatment", message, help)
    }

    pub(super) fn derived(entry: &str, doc: &str) -> Refusal {
        let message = format!("treatment `{entry}`: this value is derived and cannot be chosen");
        let doc = doc.trim_end_matches('.');
        refusal("derived-treatment", message, format!("declare the fields it follows from ({doc})"))
    }

    /// A field of what is measured.
    pub(super) fn measured(entry: &str, path: &str) -> Refusal {
        let which = if entry == path { "it is" } else { &format!("`{path}` is") };
        refusal(
            "measured-treatment",
            format!(
                "treatment `{entry}`: {which} how results are measured, and what is measured is no treatment"
            ),
            format!(
                "give both arms one value of `{path}`, and declare what they train differently"
            ),
        )
    }

    /// A default that differs because of another field.
    pub(super) fn follows(entry: &str, path: &str) -> Refusal {
        let message = format!("treatment `{entry}`: `{path}` is a default in both arms");
        refusal(
            "derived-treatment",
            message,
            "it differs because another field differs: declare that one, and this one becomes a consequence",
        )
    }

    pub(super) fn agree(entry: &str, value: &str, below: &[String]) -> Refusal {
        let value = if value.is_empty() { String::new() } else { format!(": both have {value}") };
        let message = format!("treatment `{entry}`: the arms do not differ in it{value}");
        let help = match below {
            [] => "leave it out of the treatment".to_owned(),
            below => format!("the difference is below it: {}", below.join(", ")),
        };
        refusal("idle-treatment", message, help)
    }

    pub(super) fn twice(entry: &str, before: &str) -> Refusal {
        let message = if entry == before {
            format!("treatment `{entry}` is given twice")
        } else {
            format!("treatment `{entry}` is already part of `{before}`")
        };
        refusal("treatment-twice", message, "leave one of them out: a factor counts once")
    }

    pub(super) fn one_sided(entry: &str, path: &str) -> Refusal {
        let above = path.rsplit_once('.').map_or(path, |(above, _)| above);
        refusal(
            "one-sided-treatment",
            format!("treatment `{entry}`: only one arm has `{path}`"),
            format!("declare the field that it belongs to: `{above}`"),
        )
    }

    /// A slot that the definitions of one arm do not declare.
    pub(super) fn undeclared_slot(entry: &str, slot: &str, declaring: &[String]) -> Refusal {
        let help = match declaring {
            [] => {
                "the other arm has no such slot to fill: make the arms agree on the slot".to_owned()
            }
            paths => {
                let quoted: Vec<String> = paths.iter().map(|path| format!("`{path}`")).collect();
                format!(
                    "also declare the definition that declares the slot: {}",
                    quoted.join(" or ")
                )
            }
        };
        let message = format!("treatment `{entry}`: only one arm declares slot {slot}");
        refusal("one-sided-treatment", message, help)
    }

    /// A layer that neither arm has.
    pub(super) fn no_layer(entry: &str, layer: usize, layers: usize) -> Refusal {
        let last = layers.saturating_sub(1);
        refusal(
            "unknown-treatment",
            format!(
                "treatment `{entry}`: neither arm has layer {layer}; each has {}",
                dsl::counted(layers, "layer")
            ),
            format!("layers are numbered from 0 to {last}"),
        )
    }

    /// Layers in which neither arm has the field.
    pub(super) fn not_in_layers(entry: &str, path: &str) -> Refusal {
        refusal(
            "unknown-treatment",
            format!("treatment `{entry}`: these layers have no such field"),
            format!(
                "`canonc show --fields` lists each layer's fields; `{path}` means every layer that has it"
            ),
        )
    }

    /// A range that is empty, or includes layers that neither arm has.
    pub(super) fn no_such_range(
        entry: &str,
        (from, to): (usize, usize),
        layers: usize,
        general: &str,
    ) -> Refusal {
        let message = if from >= to {
            format!("treatment `{entry}`: the range {from}..{to} contains no layer")
        } else {
            format!(
                "treatment `{entry}`: the range {from}..{to} ends after layer {}, the last",
                layers.saturating_sub(1)
            )
        };
        let tail = general.strip_prefix("arch.layers.*").unwrap_or_default();
        let start = if from < to.min(layers) { from } else { 0 };
        refusal(
            "unknown-treatment",
            message,
            format!(
                "ranges exclude their end: write `arch.layers.{start}..{layers}{tail}`, or `{general}` for every layer"
            ),
        )
    }

    /// `canon` if the slots of layers agree and a slot of the head differs.
    pub(super) fn slot_elsewhere(entry: &str, path: &str) -> Refusal {
        let short = path.strip_prefix("arch.").unwrap_or(path);
        refusal(
            "idle-treatment",
            format!(
                "treatment `{entry}`: it covers slots of layers, and the arms do not differ in those"
            ),
            format!("declare the slot that differs: `{short}`"),
        )
    }

    /// `canon` if the slots that differ hold something else.
    pub(super) fn not_canon(entry: &str, slot: &str, fill: &str) -> Refusal {
        refusal(
            "not-canon",
            format!("treatment `{entry}`: slot {slot} holds `{fill}`, which is not a Canon layer"),
            format!("declare the slot: `slots.{slot}`"),
        )
    }

    /// Fields that differ without any effect.
    pub(super) fn without_effect(entry: &str) -> Refusal {
        refusal(
            "idle-treatment",
            format!("treatment `{entry}`: its values differ, but the arch is the same with both"),
            "leave it out of the treatment",
        )
    }

    /// Fields that agree in the layers that both arms have.
    pub(super) fn other_layers(entry: &str, a: &str, b: &str) -> Refusal {
        refusal(
            "idle-treatment",
            format!(
                "treatment `{entry}`: the arms have {a} and {b} layers, and do not differ in the ones that both have"
            ),
            "declare `layers`, or a field that differs in the layers that both have",
        )
    }

    /// An arch in which defaults cannot be separated from choices.
    pub(super) fn not_plain(reason: &str) -> Refusal {
        refusal(
            "no-proof",
            format!("defaults and choices cannot be separated in these archs: {reason}"),
            "this is a bug in canonc, or an arch at the limits of the language: please report it",
        )
    }

    pub(super) fn not_of_archs(entry: &str) -> Refusal {
        refusal(
            "unknown-treatment",
            format!("treatment `{entry}`: locks of kind arch have no such field"),
            "compare experiment locks: `canonc build` a recipe",
        )
    }

    pub(super) fn kinds(a: &Side<'_>, b: &Side<'_>) -> Refusal {
        let kind = |side: &Side<'_>| if side.experiment.is_some() { "experiment" } else { "arch" };
        let message = format!(
            "`{}` is a lock of kind {}, but `{}` is of kind {}",
            a.label,
            kind(a),
            b.label,
            kind(b)
        );
        refusal("other-kind", message, "compare two archs or two experiments")
    }

    pub(crate) fn comparison(name: &str) -> Refusal {
        refusal(
            "other-kind",
            format!("`{name}` is a lock of kind comparison: it contains its own verdict"),
            "compare two archs or two experiments",
        )
    }

    pub(super) fn inconsistent(what: &str) -> Refusal {
        refusal(
            "internal-inconsistency",
            what.to_owned(),
            "this is a bug in canonc: please report it with both locks",
        )
    }
}
