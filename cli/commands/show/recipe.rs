//! `canonc show --recipe-fields`: the fields of a recipe, from the field table. `recipes/README.md` holds this text.

use std::collections::BTreeMap;

use lab::field::{Default, FieldDef, Origin, TABLE};
use serde::Serialize;

use crate::fail::{Exit, Outcome};
use crate::output;

pub(super) fn show(as_json: bool) -> Outcome {
    if as_json {
        let fields = TABLE.iter().map(Row::from_field).collect();
        output::json(&Document { schema: "canonc.show.recipe_fields.v1", fields })?;
    } else {
        output::data(&markdown())?;
    }
    Ok(Exit::Fine)
}

fn markdown() -> String {
    let mut sections: BTreeMap<&str, Vec<Row>> = BTreeMap::new();
    let mut derived = Vec::new();
    for def in TABLE.iter() {
        match def.origin {
            Origin::Derived if def.instead.is_none() => derived.push(Row::from_field(def)),
            Origin::Free | Origin::Decides | Origin::Derived => {
                sections.entry(def.section()).or_default().push(Row::from_field(def));
            }
        }
    }
    let mut text = String::new();
    for (section, rows) in sections {
        text += &format!(
            "### {section}\n\n| field | accepts | default | class | only for | meaning |\n"
        );
        text += "|---|---|---|---|---|---|\n";
        for row in rows {
            let Row { path, class, origin, accepts, default, unit, only, doc } = row;
            let default = match (&default, origin) {
                (_, "decides") => "one of the two".to_owned(),
                (Some(default), _) => default.clone(),
                (None, _) => "required".to_owned(),
            };
            let only = only.map_or(String::new(), |only| match only.values {
                [] => format!("`{}`", only.path),
                words => words.join(", "),
            });
            let accepts = with_unit(accepts.unwrap_or_default(), unit);
            text += &format!(
                "| `{path}` | {} | {} | {class} | {only} | {} |\n",
                cell(&accepts),
                cell(&default),
                cell(doc)
            );
        }
        text.push('\n');
    }
    text += "### Derived\n\nComputed from the fields above and written into the lock; a recipe must not set them.\n\n";
    text += "| field | unit | class | meaning |\n|---|---|---|---|\n";
    for Row { path, class, unit, doc, .. } in derived {
        text += &format!("| `{path}` | {unit} | {class} | {} |\n", cell(doc));
    }
    text
}

/// `an integer from 1 to 8, in steps`
fn with_unit(accepts: String, unit: &str) -> String {
    if unit.is_empty() { accepts } else { format!("{accepts}, in {unit}") }
}

/// Text with `|` escaped for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

// The schema of `--json`.

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    fields: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    path: &'static str,
    class: &'static str,
    origin: &'static str,
    /// The values that a recipe may write; `None` if it may not write the field.
    accepts: Option<String>,
    default: Option<String>,
    unit: &'static str,
    only: Option<Only>,
    doc: &'static str,
}

#[derive(Serialize)]
struct Only {
    path: &'static str,
    values: &'static [&'static str],
}

impl Row {
    fn from_field(def: &FieldDef) -> Row {
        let FieldDef { path, class, origin, kind, default, only, instead, unit, doc, .. } = *def;
        let origin = match origin {
            Origin::Free => "free",
            Origin::Decides => "decides",
            Origin::Derived => "derived",
        };
        Row {
            path,
            class: class.word(),
            origin,
            accepts: def.is_writable().then(|| kind.describe()),
            default: match default {
                Default::Required => instead.map(|of| format!("from `{of}`, or that from it")),
                Default::Is(value) => Some(format!("`{value}`")),
                Default::From(..) | Default::UpTo(_) | Default::SameAs(_) => default.rule(),
            },
            unit,
            only: only.map(|(path, values)| Only { path, values }),
            doc,
        }
    }
}
