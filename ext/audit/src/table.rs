//! Tables of experiments: CSV with `,`, `;` or tabs, and Markdown.

use std::collections::BTreeSet;

use crate::experiment::{BadInput, Experiment, MAX_EXPERIMENTS, Names};
use crate::keys::is_ours;
use crate::vocabularies::{GENERIC, LINGUA, Vocabulary};

/// Most columns and rows of a table.
const MAX_COLUMNS: usize = 1000;
const MAX_ROWS: usize = MAX_EXPERIMENTS;

const QUOTES: &str = "close the quotation mark, and double one inside the quotes";

/// Columns that name the experiment, the first that a table has. W&B writes `Name`.
const NAME_COLUMNS: [&str; 8] =
    ["name", "model", "run", "run_name", "experiment", "experiment_name", "run_id", "id"];

/// Most columns that a message names.
const SHOWN_COLUMNS: usize = 12;

/// A row of cells and its line.
type TableRow = (usize, Vec<String>);

/// Reads a table with a header line. Its vocabulary is recognised.
pub fn table(source: &str, text: &str) -> Result<Vec<Experiment>, BadInput> {
    table_in(source, text, &Names::default())
}

/// Reads a table with a header line: cells are separated by tabs, by semicolons, or by commas.
pub fn table_in(source: &str, text: &str, names: &Names) -> Result<Vec<Experiment>, BadInput> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let header = text.lines().next().unwrap_or("");
    if header.trim().is_empty() {
        return Err(empty());
    }
    let rows = match separator(header) {
        '\t' => text
            .lines()
            .zip(1..)
            .filter(|(line, _)| !line.trim().is_empty())
            .map(|(line, at)| (at, line.split('\t').map(str::to_owned).collect()))
            .collect(),
        separator => quoted(text, separator)?,
    };
    experiments(source, rows, names)
}

/// Reads every table of a Markdown file that names experiments.
pub fn markdown(source: &str, text: &str, names: &Names) -> Result<Vec<Experiment>, BadInput> {
    let mut all = Vec::new();
    let mut block: Vec<TableRow> = Vec::new();
    for (line, at) in text.lines().chain([""]).zip(1..) {
        let line = line.trim();
        if line.starts_with('|') {
            block.push((at, bars(line)));
            continue;
        }
        let rows = std::mem::take(&mut block);
        let ruled = rows.get(1).is_some_and(|(_, cells)| cells.iter().all(|cell| is_rule(cell)));
        let mut rows = rows.into_iter();
        let header = rows.next().filter(|_| ruled);
        let Some(header) = header.filter(|(_, cells)| name_column(cells).is_some()) else {
            continue;
        };
        all.extend(experiments(source, [header].into_iter().chain(rows.skip(1)).collect(), names)?);
    }
    if all.is_empty() {
        let message = "it has no table with a column `name` or `model`".to_owned();
        let help =
            "write `| name | optimizer.lr |`, a line `|---|---|`, then a line for each experiment";
        return Err(BadInput::new(0, message, help));
    }
    Ok(all)
}

/// The cells between the bars of a line, without marks for code and emphasis.
fn bars(line: &str) -> Vec<String> {
    let inner = line.trim_matches('|').replace("\\|", "\u{1}");
    let plain = |cell: &str| cell.replace('\u{1}', "|").trim().trim_matches(['`', '*']).to_owned();
    inner.split('|').map(plain).collect()
}

/// Whether a cell belongs to the line below a header: `:---:`.
fn is_rule(cell: &str) -> bool {
    !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':' | ' '))
}

fn separator(header: &str) -> char {
    let outside: String = header.split('"').step_by(2).collect::<Vec<_>>().join("");
    match (outside.contains('\t'), outside.matches(';').count(), outside.matches(',').count()) {
        (true, ..) => '\t',
        (false, semicolons, commas) if semicolons > commas => ';',
        (false, ..) => ',',
    }
}

fn empty() -> BadInput {
    let help = "the first line must name the columns: `model`, then keys such as `optim.lr`";
    BadInput::new(0, "the table is empty".to_owned(), help)
}

/// The rows of a text with quoted cells, which may contain separators and line breaks.
fn quoted(text: &str, separator: char) -> Result<Vec<TableRow>, BadInput> {
    let mut rows: Vec<TableRow> = Vec::new();
    let mut cells = vec![String::new()];
    let (mut open, mut line, mut first) = (false, 1, 1);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let fresh = cells.last().is_some_and(String::is_empty);
        let last = cells.last_mut();
        match c {
            '"' if open && rest.peek() == Some(&'"') => {
                rest.next();
                last.into_iter().for_each(|cell| cell.push('"'));
            }
            '"' if open || fresh => open = !open,
            '\r' if rest.peek() == Some(&'\n') => {}
            '\n' if !open => {
                push(&mut rows, first, std::mem::replace(&mut cells, vec![String::new()]));
                line += 1;
                first = line;
            }
            c if c == separator && !open => cells.push(String::new()),
            c => {
                line += usize::from(c == '\n');
                last.into_iter().for_each(|cell| cell.push(c));
            }
        }
    }
    if open {
        return Err(BadInput::new(first, "a quotation mark is not closed".to_owned(), QUOTES));
    }
    push(&mut rows, first, cells);
    Ok(rows)
}

/// Adds a row that is not a blank line.
fn push(rows: &mut Vec<TableRow>, line: usize, cells: Vec<String>) {
    if cells.len() > 1 || cells.iter().any(|cell| !cell.trim().is_empty()) {
        rows.push((line, cells));
    }
}

/// The column that names experiments. W&B's `Name` goes before a column `model`, which is then a key.
fn name_column(columns: &[String]) -> Option<usize> {
    let exact = columns.iter().position(|c| matches!(c.trim(), "model" | "name"));
    let wandb = columns
        .iter()
        .any(|c| c.trim() == "State")
        .then(|| columns.iter().position(|c| c.trim() == "Name"));
    let any = || {
        NAME_COLUMNS.iter().find_map(|name| {
            columns.iter().position(|c| c.trim().to_lowercase().replace([' ', '-'], "_") == *name)
        })
    };
    wandb.flatten().or(exact).or_else(any)
}

/// The columns in which pandas numbers the rows: nameless or `Unnamed: 0`, from 0.
fn numbered(columns: &[String], rows: &[TableRow]) -> BTreeSet<usize> {
    let is_one = |at: &usize| {
        let name = columns.get(*at).map_or("", String::as_str);
        let numbers = || {
            let mut cells = (0usize..).zip(rows).map(|(number, (_, row))| (number, row.get(*at)));
            cells.all(|(number, cell)| cell.is_some_and(|cell| cell.trim() == number.to_string()))
        };
        (name.is_empty() || name.starts_with("Unnamed:")) && numbers()
    };
    (0..columns.len()).filter(is_one).collect()
}

/// The experiments of a header and its rows.
fn experiments(
    source: &str,
    rows: Vec<TableRow>,
    names: &Names,
) -> Result<Vec<Experiment>, BadInput> {
    let mut rows = rows.into_iter();
    let Some((top, header)) = rows.next() else { return Err(empty()) };
    let columns: Vec<String> = header.iter().map(|column| column.trim().to_owned()).collect();
    let name_at = check_columns(top, &columns)?;
    let keys: Vec<&str> = columns.iter().map(String::as_str).filter(|c| !c.is_empty()).collect();
    let vocabulary = vocabulary_of(&keys, names);
    let mut experiments = Vec::new();
    let rows: Vec<TableRow> = rows.collect();
    let numbered = numbered(&columns, &rows);
    check_unnamed_columns(&columns, &rows, &numbered)?;
    for (number, row) in rows {
        if experiments.len() == MAX_ROWS {
            let message = format!("the table has more than {MAX_ROWS} rows");
            return Err(BadInput::new(number, message, "split it"));
        }
        if row.len() != columns.len() {
            let message = format!(
                "the table has {}, but this row has {}",
                dsl::counted(columns.len(), "column"),
                dsl::counted(row.len(), "cell")
            );
            let help = "write one cell for each column, empty if the value is absent";
            return Err(BadInput::new(number, message, help));
        }
        let name = row.get(name_at).map_or("", |name| name.trim());
        if name.is_empty() {
            let help = "give every experiment a unique name";
            return Err(BadInput::new(number, "this row has no name".to_owned(), help));
        }
        let experiment = Experiment::new(name, format!("{source}:{number}"));
        let mut experiment = Experiment { vocabulary, ..experiment };
        let cells = columns.iter().zip(&row).enumerate();
        let named =
            |at: usize, column: &str| at == name_at || column.is_empty() || numbered.contains(&at);
        let cells = cells.filter(|(at, (column, _))| !named(*at, column)).map(|(_, cell)| cell);
        let mut cells: Vec<(&String, &String)> = cells.collect();
        if vocabulary.has_synonyms() {
            cells.sort();
        }
        for (column, cell) in cells {
            experiment.write(column, cell, names).map_err(|bad| bad.at(name, number))?;
        }
        experiment.finish();
        experiments.push(experiment);
    }
    if experiments.is_empty() {
        let help = "write one row for each experiment";
        return Err(BadInput::new(1, "the table has no rows".to_owned(), help));
    }
    Ok(experiments)
}

/// A column without a name has no cells, or the numbers of the rows.
fn check_unnamed_columns(
    columns: &[String],
    rows: &[TableRow],
    numbered: &BTreeSet<usize>,
) -> Result<(), BadInput> {
    for (at, _) in columns.iter().enumerate().filter(|(_, column)| column.is_empty()) {
        let cells = rows.iter().filter_map(|(line, row)| Some((*line, row.get(at)?.trim())));
        let written = cells.filter(|_| !numbered.contains(&at)).find(|(_, cell)| !cell.is_empty());
        if let Some((line, cell)) = written {
            let message = format!("column {} has no name, but `{cell}` in this row", at + 1);
            return Err(BadInput::new(line, message, "name the column in the first line"));
        }
    }
    Ok(())
}

/// Reads records of keys and cells, each with its line: the objects of a JSON file, one for each experiment.
pub fn records(
    source: &str,
    rows: &[(usize, Vec<(String, String)>)],
    names: &Names,
) -> Result<Vec<Experiment>, BadInput> {
    if rows.len() > MAX_ROWS {
        let message = format!("there are {} records; at most {MAX_ROWS}", rows.len());
        return Err(BadInput::new(0, message, "split the file"));
    }
    let keys: BTreeSet<&str> =
        rows.iter().flat_map(|(_, cells)| cells.iter().map(|(key, _)| key.as_str())).collect();
    let keys: Vec<&str> = keys.into_iter().collect();
    let vocabulary = vocabulary_of(&keys, names);
    let mut experiments = Vec::new();
    for (line, cells) in rows {
        let columns: Vec<String> = cells.iter().map(|(key, _)| key.clone()).collect();
        let at = name_column(&columns).unwrap_or(usize::MAX);
        let Some((_, name)) = cells.get(at) else {
            let help = "give every object a key `name`";
            return Err(BadInput::new(*line, "this object names no experiment".to_owned(), help));
        };
        let experiment = Experiment::new(name.trim(), format!("{source}:{line}"));
        let mut experiment = Experiment { vocabulary, ..experiment };
        let named = columns.get(at);
        let mut cells: Vec<&(String, String)> =
            cells.iter().filter(|(key, _)| Some(key) != named).collect();
        if vocabulary.has_synonyms() {
            cells.sort();
        }
        for (key, cell) in cells {
            experiment.write(key, cell, names).map_err(|bad| bad.at(name, *line))?;
        }
        experiment.finish();
        experiments.push(experiment);
    }
    Ok(experiments)
}

/// The vocabulary of a table: canonc's if a column has one of its names.
fn vocabulary_of(keys: &[&str], names: &Names) -> &'static Vocabulary {
    match names.for_keys(keys, true) {
        known if names.vocabulary.is_some() || *known != GENERIC => known,
        _ if keys.iter().any(|key| is_ours(key)) => &LINGUA,
        other => other,
    }
}

/// Checks the names of columns, and finds the one that names experiments.
fn check_columns(line: usize, columns: &[String]) -> Result<usize, BadInput> {
    let Some(name_at) = name_column(columns) else {
        let shown = columns.iter().take(SHOWN_COLUMNS).map(|column| format!("`{column}`"));
        let shown = shown.collect::<Vec<_>>().join(", ");
        let more = match columns.len().saturating_sub(SHOWN_COLUMNS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message =
            format!("no column is called `model` or `name`; the columns are {shown}{more}");
        let help = "rename the column with the experiments' names to `name`";
        return Err(BadInput::new(line, message, help));
    };
    if columns.len() > MAX_COLUMNS {
        let message = format!("the table has {} columns; at most {MAX_COLUMNS}", columns.len());
        return Err(BadInput::new(line, message, "leave out columns that no rule needs"));
    }
    for (at, column) in columns.iter().enumerate().filter(|(_, column)| !column.is_empty()) {
        if columns.iter().take(at).any(|before| before == column) {
            let message = format!("two columns are called `{column}`");
            return Err(BadInput::new(line, message, "keep one of the two"));
        }
    }
    Ok(name_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::KeyValue;

    #[test]
    fn foreign_keys_become_ours() {
        let text = "model\tmodel.canon_set\toptim.lr\tmodel.model_name\tmine.key\tgpus_from_comment\n\
                    a\tAbbCD\t2e-3\tGLA5\tx\t128\n";
        let read = table("t.tsv", text).unwrap();
        let say = |path: &str| read[0].values.get(path).map(KeyValue::to_string);
        assert_eq!(say("arch.canon").as_deref(), Some("ACD"));
        assert_eq!(say("arch.mixer.short_conv").as_deref(), Some("true"));
        assert_eq!(say("optimizer.lr").as_deref(), Some("0.002"));
        assert_eq!(say("arch.mixer").as_deref(), Some("gla"));
        assert_eq!(say("mine.key").as_deref(), Some("x"));
        assert!(read[0].unknown.iter().eq(["mine.key"]));
        assert!(read[0].comments.contains("platform.devices"));
        assert_eq!(read[0].source, "t.tsv:2");
    }

    #[test]
    fn invalid_tables() {
        for (text, want) in [
            ("", "the table is empty"),
            ("a\tb\n1\t2\n", "the columns are `a`, `b`"),
            ("model\ta\ta\n", "two columns are called `a`"),
            ("model\ta\nx\n", "the table has 2 columns, but this row has 1 cell"),
            ("model\ta\n\t1\n", "this row has no name"),
            ("model\ta\n", "the table has no rows"),
            ("model,a\nx,\"1\n", "a quotation mark is not closed"),
            (
                "model\toptimizer.lr\nx\tNaN\n",
                "`x`: `optimizer.lr` is `NaN`, which is not a finite number",
            ),
            (
                "model\toptim.weight_decay\nx\t1e400\n",
                "`optim.weight_decay` is `1e400`, which is out",
            ),
            ("model\tlr\tsteps\nx\tNaN\tinf\n", "`steps` is `inf`, which is not a finite number"),
            (
                "model\tseeds.data\nx\ttrue\n",
                "`seeds.data` is `true`, which is not a finite number",
            ),
            ("model\tarch.canon.kernel.A\nx\tNaN\n", "`arch.canon.kernel.A` is `NaN`"),
            ("model\tcanon\nx\tmaybe\n", "`x`: `canon` is `maybe`, which does not name slots"),
            ("model\tcanon\nx\twithout\n", "`canon` is `without`"),
            ("model\tcanon\nx\t0.5\n", "`canon` is `0.5`"),
            ("model\tarch.canon\nx\tperhaps\n", "`arch.canon` is `perhaps`"),
            ("model\tmodel.canon_set\nx\tmaybe\n", "`model.canon_set` is `maybe`"),
            ("model\tmodel.canon_set\nx\tabcd\n", "`model.canon_set` is `abcd`"),
            ("model\tmodel.canon_set\nx\tAZ\n", "`model.canon_set` is `AZ`"),
            ("model\tsteps\tbudget.steps\nx\t1\t2\n", "`steps` is 1, but `budget.steps`"),
        ] {
            let error = table("t", text).unwrap_err();
            assert!(error.message.contains(want), "{text:?}: {}", error.message);
        }
        let read = table("t", "model,a\nx,\"1,\"\"2\"\"\"\n").unwrap();
        assert_eq!(read[0].values["a"], KeyValue::text("1,\"2\""));
    }
}
