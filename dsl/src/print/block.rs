//! The contents of braces as documents: statements, entries, layer lists.
//!
//! Text that the author put on one line stays on one line if it fits and reads the same; text that began on a new line stays
//! broken.

use super::Builder;
use super::doc::{
    Doc, Upto, brk, close, concat, group_if, if_broken, if_flat, indent, text, trail,
};
use super::expr::{Applied, Level, names};
use super::layout::{STEP, WIDTH};
use crate::lex::Keyword;
use crate::{Body, Entry, Expr, LayerList, LayerWhat, Path, Segment, Select, Span, Statement};

/// Values are aligned only if their names differ at most this much in length.
const ALIGN: usize = 8;
/// The space between items on one line without a comma.
const GAP: &str = "   ";

impl Builder<'_> {
    // --- bodies ---

    /// `{ statements result }`
    pub(super) fn body(&mut self, body: &Body) -> Doc {
        let end = body.span.end;
        let inline = self.on_one_line(body.span)
            && body.statements.is_empty()
            && !self.has_comment((body.span.start, end));
        self.level += 1;
        let first = body.result.first().map_or(end, |result| result.span.start);
        let mut inner = self.statements(&body.statements, Upto::all(first));
        let mut results = Vec::new();
        for (i, result) in body.result.iter().enumerate() {
            if i > 0 {
                let start = result.span.start;
                results.extend([text(","), trail(Upto::all(start)), brk(" ", start, true)]);
            }
            results.push(self.expr(result));
        }
        let last = body.result.last().map_or(first, |result| result.span.start);
        let parted = self.has_comment((first, last));
        self.level -= 1;
        if !results.is_empty() {
            inner.push(brk(" ", first, body.statements.is_empty()));
            inner.push(group_if(parted, results));
            inner.push(trail(Upto::all(end)));
        }
        let start = body.statements.first().map_or(first, |s| s.span().start);
        let braced = self.braced(!inline, inner, start, Upto::all(end));
        group_if(!inline, braced)
    }

    /// `{ … }`, with contents that begin at `first`.
    fn braced(&mut self, broken: bool, inner: Vec<Doc>, first: u32, end: Upto) -> Vec<Doc> {
        if inner.is_empty() && !broken {
            return vec![text("{}")];
        }
        let closing_only = end.closing_only && inner.is_empty();
        let open = trail(Upto { at: first.min(end.at), closing_only });
        vec![text("{"), open, indent(inner), close(" ", end), text("}")]
    }

    /// Statements, each on its own line or in the row the author made.
    fn statements(&mut self, list: &[Statement], end: Upto) -> Vec<Doc> {
        let docs: Vec<Doc> = list.iter().map(|statement| self.statement(statement)).collect();
        let spans: Vec<Span> = list.iter().map(Statement::span).collect();
        let widths: Vec<Option<usize>> = docs.iter().map(|doc| doc.flat).collect();
        let rows = self.rows(&widths, &spans, |_| true);
        self.lay_rows(docs, &spans, &rows, GAP, end)
    }

    /// `{ … }` of an `if`.
    fn branch(&mut self, list: &[Statement], broken: bool, end: Upto) -> Vec<Doc> {
        self.level += 1;
        let inner = self.statements(list, end);
        self.level -= 1;
        let first = list.first().map_or(end.at, |statement| statement.span().start);
        self.braced(broken, inner, first, end)
    }

    fn statement(&mut self, statement: &Statement) -> Doc {
        match statement {
            Statement::Let { names: bound, value, .. } => {
                concat(vec![text(format!("{} = ", names(bound))), self.expr(value)])
            }
            Statement::Param { name, dims, init, span } => {
                let end = init.as_ref().map_or(span.end, |init| init.span.start);
                let starts = dims.iter().map(|dim| dim.span.start).collect::<Vec<_>>();
                let range = (name.span.end, end);
                let dims = self.list(("[", "]"), range, dims, &starts, Builder::expr);
                let mut docs = vec![text(format!("param {} ", name.text)), dims];
                if let Some(init) = init {
                    docs.extend([text(" init "), self.expr(init)]);
                }
                concat(docs)
            }
            Statement::Share { name, callee, entries, span } => {
                let mut docs = vec![text(format!("share {} = {}", name.text, callee.text))];
                if let Some(entries) = entries {
                    docs.extend([
                        text(" "),
                        self.inline_entries(entries, (callee.span.end, span.end)),
                    ]);
                }
                concat(docs)
            }
            Statement::Carry { name, value, otherwise, span } => {
                let start = concat(vec![text(format!("carry {} = ", name.text)), self.expr(value)]);
                if otherwise.is_empty() {
                    return start;
                }
                let inline = self.on_one_line(*span) && !self.has_comment((span.start, span.end));
                let mut docs = vec![start, text(" else ")];
                docs.extend(self.branch(otherwise, !inline, Upto::all(span.end)));
                group_if(!inline, docs)
            }
            Statement::If { condition, then, otherwise, span } => {
                let inline = self.on_one_line(*span) && !self.has_comment((span.start, span.end));
                let docs = self.if_statement(condition, then, otherwise, span.end, inline);
                group_if(!inline, docs)
            }
        }
    }

    /// Either all arms of an `if` are on one line, or none.
    fn if_statement(
        &mut self,
        condition: &Expr,
        then: &[Statement],
        otherwise: &[Statement],
        end: u32,
        inline: bool,
    ) -> Vec<Doc> {
        let condition = self.expr_in(condition, Level::Or, Applied::Parenthesised);
        let mut docs = vec![text("if "), condition, text(" ")];
        let Some(next) = otherwise.first() else {
            docs.extend(self.branch(then, !inline, Upto::all(end)));
            return docs;
        };
        let then_end = Upto { at: next.span().start, closing_only: true };
        docs.extend(self.branch(then, !inline, then_end));
        docs.push(text(" else "));
        docs.extend(match otherwise {
            [Statement::If { condition, then, otherwise, .. }] => {
                self.if_statement(condition, then, otherwise, end, inline)
            }
            _ => self.branch(otherwise, !inline, Upto::all(end)),
        });
        docs
    }

    // --- rows ---

    /// Groups neighbours that were on one line of a broken block and still can be: the number of
    /// items of each row.
    fn rows(
        &self,
        widths: &[Option<usize>],
        spans: &[Span],
        may_follow: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let packed = self.on_new_line(spans.first().map(|span| span.start));
        let mut rows: Vec<usize> = Vec::new();
        let (mut length, mut width) = (0, 0);
        let mut before: Option<Span> = None;
        for (i, (flat, span)) in widths.iter().zip(spans).enumerate() {
            let together = packed
                && before.is_some_and(|before| self.on_one_line(before.to(*span)))
                && may_follow(i);
            if !together {
                close_row(&mut rows, length, width);
                (length, width) = (0, self.level * STEP);
            } else {
                width += GAP.len();
            }
            width += flat.unwrap_or(WIDTH);
            length += 1;
            before = Some(*span);
        }
        close_row(&mut rows, length, width);
        rows
    }

    /// Lays out one row per line; `gap` separates items if the block is on one line.
    fn lay_rows(
        &self,
        docs: Vec<Doc>,
        spans: &[Span],
        rows: &[usize],
        gap: &'static str,
        end: Upto,
    ) -> Vec<Doc> {
        let mut out = Vec::new();
        let mut docs = docs.into_iter();
        let mut at = 0;
        for length in rows {
            let start = spans.get(at).map_or(end.at, |span| span.start);
            out.push(brk(if at == 0 { " " } else { gap }, start, at == 0));
            for (i, doc) in docs.by_ref().take(*length).enumerate() {
                if i > 0 {
                    out.push(text(GAP));
                }
                out.push(doc);
            }
            at += length;
            out.push(trail(spans.get(at).map_or(end, |span| Upto::all(span.start))));
        }
        out
    }

    // --- entries ---

    /// `{ a 1, b 2 }` on one line if it fits, with the comments in `range`.
    pub(super) fn inline_entries(&mut self, entries: &[Entry], range: (u32, u32)) -> Doc {
        let start = entries.first().map(|entry| entry.span().start);
        // A list of slots without braces would take the text after a comma for another slot.
        let (_, but_last) = entries.split_last().unzip();
        let ambiguous = but_last
            .unwrap_or_default()
            .iter()
            .any(|entry| matches!(entry, Entry::Canon { entries: None, .. } | Entry::Empty { .. }));
        let broken = ambiguous || self.on_new_line(start) || self.has_comment(range);
        self.entries(entries, broken, range.1)
    }

    /// `{ entries }` of an arch or an init table: on one line only if the author wrote it so.
    pub(super) fn block_entries(
        &mut self,
        entries: &[Entry],
        range: (u32, u32),
        span: Span,
    ) -> Doc {
        if self.on_one_line(span) {
            return self.inline_entries(entries, range);
        }
        self.entries(entries, !entries.is_empty() || self.has_comment(range), range.1)
    }

    fn entries(&mut self, entries: &[Entry], broken: bool, end: u32) -> Doc {
        self.level += 1;
        // The values of roles contain no roles.
        let roles = std::mem::take(&mut self.roles);
        let spans: Vec<Span> = entries.iter().map(Entry::span).collect();
        let parts: Vec<(String, Doc)> =
            entries.iter().map(|entry| self.entry(entry, roles)).collect();
        let width = |(name, doc): &(String, Doc)| doc.flat.map(|flat| name.len() + flat);
        let widths: Vec<Option<usize>> = parts.iter().map(width).collect();
        // `a b   c (d)` would be read as the call `b c (d)`.
        let opens =
            |i: usize| parts.get(i).is_some_and(|(_, doc)| doc.first_text().starts_with('('));
        let rows = self.rows(&widths, &spans, |i| !opens(i));
        let mut padding = self.padding(entries, &spans, &rows).into_iter();
        let mut docs = Vec::new();
        for (name, doc) in parts {
            let comma = if docs.len() + 1 < entries.len() { "," } else { "" };
            let pad = " ".repeat(padding.next().unwrap_or(0));
            docs.push(concat(vec![text(name), if_broken(pad), doc, if_flat(comma)]));
        }
        let inner = self.lay_rows(docs, &spans, &rows, " ", Upto::all(end));
        self.level -= 1;
        let first = spans.first().map_or(end, |span| span.start);
        let braced = self.braced(broken, inner, first, Upto::all(end));
        group_if(broken, braced)
    }

    /// How many spaces to add to each entry's name so that the values of neighbours align.
    fn padding(&self, entries: &[Entry], spans: &[Span], rows: &[usize]) -> Vec<usize> {
        let width = |entry: &Entry| match entry {
            Entry::Set { path, .. } => match path.segments.as_slice() {
                [Segment::Name(name)] => Some(name.text.len()),
                _ => None,
            },
            Entry::Replace { .. }
            | Entry::Nested { .. }
            | Entry::Layers { .. }
            | Entry::Fill { .. }
            | Entry::Canon { .. }
            | Entry::Empty { .. } => None,
        };
        let mut padding = vec![0; entries.len()];
        let mut run: Vec<(usize, usize)> = Vec::new();
        let mut settle = |run: &mut Vec<(usize, usize)>| {
            let widest = run.iter().map(|(_, width)| *width).max().unwrap_or(0);
            let narrowest = run.iter().map(|(_, width)| *width).min().unwrap_or(0);
            for (i, width) in run.drain(..) {
                if let Some(pad) = padding.get_mut(i).filter(|_| widest - narrowest <= ALIGN) {
                    *pad = widest - width;
                }
            }
        };
        let mut at = 0;
        for length in rows {
            let alone = if *length == 1 { entries.get(at).and_then(width) } else { None };
            let joined = at.checked_sub(1).and_then(|before| spans.get(before).zip(spans.get(at)));
            if joined.is_none_or(|(before, after)| self.apart(*before, *after)) {
                settle(&mut run);
            }
            match alone {
                Some(width) => run.push((at, width)),
                None => settle(&mut run),
            }
            at += length;
        }
        settle(&mut run);
        padding
    }

    /// `canon (x)`: without parentheses it would be a list of slots.
    fn value(&mut self, path: &Path, value: &Expr, roles: bool) -> Doc {
        let doc = self.expr(value);
        let word = doc.first_text().split(' ').next().unwrap_or("");
        let begins_name = word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && Keyword::parse(word).is_none_or(Keyword::is_soft);
        match path.segments.as_slice() {
            [Segment::Name(name)] if name.text == "canon" && begins_name && !roles => {
                concat(vec![text("("), doc, text(")")])
            }
            _ => doc,
        }
    }

    /// The beginning of the entry, and the piece after it.
    fn entry(&mut self, entry: &Entry, roles: bool) -> (String, Doc) {
        match entry {
            Entry::Set { path, value, .. } => {
                (format!("{} ", path_text(path)), self.value(path, value, roles))
            }
            Entry::Replace { path, value, .. } => {
                (format!("{} = ", path_text(path)), self.expr(value))
            }
            Entry::Nested { path, entries, span } => {
                let inner = self.inline_entries(entries, (path.span.end, span.end));
                (format!("{} ", path_text(path)), inner)
            }
            Entry::Layers { value, .. } => ("layers ".to_string(), self.layer_list(value)),
            Entry::Fill { slots, with, .. } => {
                (format!("fill {} with ", paths(slots)), self.expr(with))
            }
            Entry::Canon { slots, entries: None, .. } => {
                (format!("canon {}", paths(slots)), text(""))
            }
            Entry::Canon { slots, entries: Some(entries), span } => {
                let from = slots.last().map_or(span.start, |slot| slot.span.end);
                let inner = self.inline_entries(entries, (from, span.end));
                (format!("canon {} ", paths(slots)), inner)
            }
            Entry::Empty { slots, .. } => (format!("empty {}", paths(slots)), text("")),
        }
    }

    // --- layers ---

    fn layer_list(&mut self, list: &LayerList) -> Doc {
        let mut docs = Vec::new();
        if let Some(count) = &list.count {
            docs.extend([self.expr(count), text(" of ")]);
        }
        docs.push(match &list.what {
            LayerWhat::One { share, layer } => {
                concat(vec![text(if *share { "share " } else { "" }), self.expr(layer)])
            }
            LayerWhat::List(layers) => {
                let from = list.count.as_ref().map_or(list.span.start, |count| count.span.end);
                let starts = layers.iter().map(|layer| layer.span.start).collect::<Vec<_>>();
                let range = (from, list.span.end);
                self.list(("[", "]"), range, layers, &starts, Builder::layer_list)
            }
        });
        concat(docs)
    }
}

/// Breaks a row that does not fit into lines.
fn close_row(rows: &mut Vec<usize>, length: usize, width: usize) {
    match length {
        0 => {}
        _ if width <= WIDTH => rows.push(length),
        _ => rows.extend(std::iter::repeat_n(1, length)),
    }
}

fn paths(list: &[Path]) -> String {
    list.iter().map(path_text).collect::<Vec<_>>().join(", ")
}

fn path_text(path: &Path) -> String {
    path.segments.iter().map(segment).collect::<Vec<_>>().join(".")
}

fn segment(segment: &Segment) -> String {
    let select = match segment {
        Segment::Name(name) => return name.text.clone(),
        Segment::Layers { select, .. } => select,
    };
    let inner = match select {
        Select::All => "*".to_string(),
        Select::Index(index) => index.to_string(),
        Select::Range(start, end) => format!("{start}..{end}"),
        Select::Every { step, from: 0 } => format!("every {step}"),
        Select::Every { step, from } => format!("every {step} from {from}"),
        Select::Is { path, def } => {
            let path = path.iter().map(|name| name.text.as_str()).collect::<Vec<_>>().join(".");
            format!("{path} is {}", def.text)
        }
    };
    format!("layers[{inner}]")
}
