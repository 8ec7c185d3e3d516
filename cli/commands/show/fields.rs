//! `canonc show --fields`: every effective field of an architecture, with the paths that locks list and `diff`
//! compares.

use compiler::program::Compiled;
use lab::experiment::{FieldLine, field_lines};
use serde::Serialize;

use crate::fail::{Exit, Outcome};
use crate::output;

pub(super) fn show<'a>(archs: impl Iterator<Item = &'a Compiled>, as_json: bool) -> Outcome {
    if as_json {
        let archs = archs.map(Arch::from_compiled).collect();
        output::json(&Document { schema: "canonc.show.fields.v1", archs })?;
        return Ok(Exit::Fine);
    }
    let texts: Vec<String> = archs.map(text).collect();
    output::data(&texts.join("\n"))?;
    Ok(Exit::Fine)
}

fn text(arch: &Compiled) -> String {
    let row = |line: FieldLine| {
        let FieldLine { path, value, written } = line;
        vec![path, value, if written { "written" } else { "default" }.to_owned()]
    };
    let rows: Vec<Vec<String>> = field_lines(&arch.fields).into_iter().map(row).collect();
    format!("{}\n{}", arch.name, output::table(&rows, &[], 2))
}

// The schema of `--json`.

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    archs: Vec<Arch<'a>>,
}

#[derive(Serialize)]
struct Arch<'a> {
    name: &'a str,
    fields: Vec<Field<'a>>,
}

#[derive(Serialize)]
struct Field<'a> {
    path: &'a str,
    value: &'a str,
    written: bool,
}

impl<'a> Arch<'a> {
    fn from_compiled(arch: &'a Compiled) -> Arch<'a> {
        let field = |field: &'a compiler::elaborate::Field| Field {
            path: &field.path,
            value: &field.value,
            written: field.written,
        };
        Arch { name: &arch.name, fields: arch.fields.iter().map(field).collect() }
    }
}
