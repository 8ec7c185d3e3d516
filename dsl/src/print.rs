//! The formatted text of a tree, with lines of up to 100 characters where possible.
//!
//! Printed text parses to the same tree, formatting twice changes nothing more, and every comment and doc is kept. If the
//! source is given, the author's rows, blank lines and spelling of numbers are kept; otherwise the layout depends on the
//! tree alone.

mod block;
mod doc;
mod expr;
mod layout;

use std::ops::Range;

use crate::limits::MAX_ERRORS;
use crate::{
    ArchBody, Ast, Comment, ConfigParam, Def, Diagnostics, Expr, FileId, Import, Item, Span,
};
use doc::{Doc, Upto, brk, close, concat, group_if, if_broken, indent, text, trail};
use layout::Layout;

/// The text of a tree.
pub fn print(ast: &Ast) -> String {
    file(ast, None)
}

/// The text of an expression, on as few lines as possible.
pub fn print_expr(expr: &Expr) -> String {
    let mut builder = Builder { comments: &[], source: None, level: 0, roles: false };
    let mut layout = Layout::new(&[], None);
    layout.doc(&builder.expr(expr), 0, false, 0);
    layout.out
}

/// A source in its formatted form, or its errors. Lines end as the first one of the source does.
pub fn format_source(id: FileId, source: &str) -> Result<String, Diagnostics> {
    let (ast, diagnostics) = crate::parse(id, source);
    if diagnostics.iter().take(MAX_ERRORS).any(|diagnostic| diagnostic.is_error()) {
        return Err(diagnostics);
    }
    let formatted = file(&ast, Some(source));
    let has_returns = source.split_once('\n').is_some_and(|(line, _)| line.ends_with('\r'));
    Ok(if has_returns { formatted.replace('\n', "\r\n") } else { formatted })
}

/// The state for building pieces of one file.
#[derive(Clone, Copy)]
struct Builder<'a> {
    comments: &'a [Comment],
    source: Option<&'a str>,
    /// Indentation if everything around is broken.
    level: usize,
    /// Whether this is an init table, where `canon` is a role like any other.
    roles: bool,
}

fn file(ast: &Ast, source: Option<&str>) -> String {
    let mut layout = Layout::new(&ast.comments, source);
    let mut builder = Builder { comments: &ast.comments, source, level: 0, roles: false };
    let imports = ast.imports.iter().map(Top::Import);
    let tops: Vec<Top> = imports.chain(ast.items.iter().map(Top::Item)).collect();
    let mut before: Option<(bool, bool)> = None; // whether it is an import; whether it spans several lines
    let mut end = 0;
    for (i, top) in tops.iter().enumerate() {
        let start = top.span().start;
        let next = tops.get(i + 1).map_or(u32::MAX, |top| top.span().start);
        layout.newline();
        let mark = layout.out.len();
        let docs_start = builder.docs_start(end..start, top.docs().len());
        end = top.span().end;
        let first = layout.comments_before(Upto::all(start), before.is_none(), 0);
        layout.newline();
        layout.blank(docs_start, first);
        for line in top.docs() {
            let line = if line.is_empty() { "///".to_string() } else { format!("/// {line}") };
            layout.text(&line, 0);
            layout.newline();
        }
        let body = layout.out.len();
        layout.doc(&builder.top(top), 0, false, 0);
        let lines = layout.out.get(body..).is_some_and(|text| text.contains('\n'));
        layout.trailing_comment(Upto::all(next));
        let import = matches!(top, Top::Import(_));
        if let Some((import_before, lines_before)) = before {
            let apart = import != import_before || lines || lines_before;
            let apart = apart || (source.is_none() && !import);
            if apart && layout.out.get(mark..).is_some_and(|text| !text.starts_with('\n')) {
                layout.out.insert(mark, '\n');
            }
        }
        before = Some((import, lines));
    }
    layout.comments_before(Upto::all(u32::MAX), before.is_none(), 0);
    layout.newline();
    layout.out
}

/// A top-level item of a file.
enum Top<'a> {
    Import(&'a Import),
    Item(&'a Item),
}

impl Top<'_> {
    fn span(&self) -> Span {
        match self {
            Top::Import(import) => import.span,
            Top::Item(item) => item.span(),
        }
    }

    fn docs(&self) -> &[String] {
        match self {
            Top::Import(_) => &[],
            Top::Item(item) => item.docs(),
        }
    }
}

impl Builder<'_> {
    fn top(&mut self, top: &Top) -> Doc {
        let item = match top {
            Top::Import(import) => return self.import(import),
            Top::Item(item) => item,
        };
        match item {
            Item::Def(def) => self.def(def),
            Item::Alias(alias) => {
                let head = format!("{} {} = ", alias.kind.word(), alias.name.text);
                concat(vec![text(head), self.expr(&alias.value)])
            }
            Item::Init(table) => {
                let range = (table.name.span.end, table.span.end);
                let mut roles = Builder { roles: true, ..*self };
                let entries = roles.block_entries(&table.entries, range, table.span);
                concat(vec![text(format!("init {} ", table.name.text)), entries])
            }
            Item::Arch(arch) => {
                let name = &arch.name.text;
                let (head, entries) = match &arch.body {
                    ArchBody::Fields(entries) => {
                        let range = (arch.name.span.end, arch.span.end);
                        let head = format!("arch {name} ");
                        (head, self.block_entries(entries, range, arch.span))
                    }
                    ArchBody::With { base, edits } => {
                        let range = (base.span.end, arch.span.end);
                        let head = format!("arch {name} = {} with ", base.text);
                        let short = self.source.is_none() && edits.len() == 1;
                        let entries = match short {
                            true => self.inline_entries(edits, range),
                            false => self.block_entries(edits, range, arch.span),
                        };
                        (head, entries)
                    }
                };
                concat(vec![text(head), entries])
            }
        }
    }

    fn import(&mut self, import: &Import) -> Doc {
        let end = import.path_span.start;
        let mut inner = Vec::new();
        for (i, name) in import.names.iter().enumerate() {
            let start = name.name.span.start;
            let next = import.names.get(i + 1).map_or(end, |name| name.name.span.start);
            let words = match &name.alias {
                Some(alias) => format!("{} as {}", name.name.text, alias.text),
                None => name.name.text.clone(),
            };
            let comma = if i + 1 == import.names.len() { "" } else { "," };
            inner.push(brk(" ", start, i == 0));
            inner.push(text(words + comma));
            inner.push(trail(Upto::all(next)));
        }
        let broken = self.has_comment((import.span.start, end));
        let tail = text(format!("from \"{}\"", import.path));
        group_if(broken, vec![text("import"), indent(inner), close(" ", Upto::all(end)), tail])
    }

    fn def(&mut self, def: &Def) -> Doc {
        let head = format!("{} {}", def.kind.word(), def.name.text);
        let signature = self.signature(def);
        concat(vec![text(head), signature, text(" "), self.body(&def.body)])
    }

    /// `(x; heads, kv_heads = heads)`, or the tensors and each parameter on lines of their own.
    fn signature(&mut self, def: &Def) -> Doc {
        let (from, end) = (def.name.span.end, def.body.span.start);
        let tensors = expr::names(&def.tensors);
        let first = def.tensors.first().or(def.config.first().map(|param| &param.name));
        let first = first.map(|name| name.span.start);
        let broken = self.has_comment((from, end)) || self.on_new_line(first);
        let mut open = vec![text("(")];
        let mut inner = Vec::new();
        if !def.tensors.is_empty() || def.config.is_empty() {
            open.push(trail(Upto::all(first.unwrap_or(end))));
            inner.push(brk("", first.unwrap_or(end), true));
        }
        inner.push(text(tensors));
        if !def.config.is_empty() {
            inner.push(text(";"));
        }
        let starts: Vec<u32> = def.config.iter().map(|param| param.name.span.start).collect();
        inner.push(trail(Upto::all(starts.first().copied().unwrap_or(end))));
        self.level += 1;
        for (i, param) in def.config.iter().enumerate() {
            let next = starts.get(i + 1).copied();
            inner.push(brk(" ", starts.get(i).copied().unwrap_or(end), false));
            inner.push(self.param(param));
            inner.push(if next.is_some() { text(",") } else { if_broken(",") });
            inner.push(trail(Upto::all(next.unwrap_or(end))));
        }
        self.level -= 1;
        open.extend([indent(inner), close("", Upto::all(end)), text(")")]);
        group_if(broken, open)
    }

    fn param(&mut self, param: &ConfigParam) -> Doc {
        match &param.default {
            Some(default) => {
                concat(vec![text(format!("{} = ", param.name.text)), self.expr(default)])
            }
            None => text(param.name.text.clone()),
        }
    }

    // --- the author's layout ---

    /// Whether a comment begins in this range of the source.
    fn has_comment(&self, (start, end): (u32, u32)) -> bool {
        let after = self.comments.partition_point(|comment| comment.span.start < start);
        self.comments.get(after).is_some_and(|comment| comment.span.start < end)
    }

    /// Whether the author began a line with the text at `at`.
    fn on_new_line(&self, at: Option<u32>) -> bool {
        let before = at.zip(self.source).and_then(|(at, source)| source.get(..at as usize));
        before.is_some_and(|before| {
            let gap = before.len() - before.trim_end().len();
            before.get(before.len() - gap..).is_some_and(|gap| gap.contains('\n'))
        })
    }

    /// Whether the author wrote it on one line; false without a source.
    fn on_one_line(&self, span: Span) -> bool {
        let range = span.start as usize..span.end as usize;
        self.source.and_then(|source| source.get(range)).is_some_and(|text| !text.contains('\n'))
    }

    /// Whether a blank line, or a comment on its own line, will separate two neighbours.
    fn apart(&self, before: Span, after: Span) -> bool {
        let range = before.end as usize..after.start as usize;
        let gap = self.source.and_then(|source| source.get(range)).unwrap_or("");
        // One comment can trail a line; further ones move to their own lines.
        let from = self.comments.partition_point(|comment| comment.span.start < before.start);
        let between = self.comments.get(from..).unwrap_or_default().iter();
        let mut between = between.take_while(|comment| comment.span.start < after.start);
        let trails = between.next().is_none_or(|comment| comment.trailing);
        gap.matches('\n').count() > 1 || !trails || between.next().is_some()
    }

    /// Where the `///` lines between the previous item and this one begin.
    fn docs_start(&self, between: Range<u32>, lines: usize) -> u32 {
        let (floor, start) = (between.start as usize, between.end);
        let Some(source) = self.source else { return start };
        let (mut at, mut left) = (start as usize, lines);
        while left > 0 && at > floor {
            let end = source.get(..at).and_then(|before| before.rfind('\n'));
            let Some(end) = end else { break };
            at = source.get(..end).and_then(|before| before.rfind('\n')).map_or(0, |n| n + 1);
            let line = source.get(at..end).unwrap_or("");
            let words = line.trim_start();
            if words.starts_with("///") && !words.starts_with("////") {
                left -= 1;
            }
            if left == 0 {
                return (at + line.len() - words.len()) as u32;
            }
        }
        start
    }
}
