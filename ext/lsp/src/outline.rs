//! Lists of definitions, formatting as `canonc fmt` does it, and corrections.

use dsl::{FileId, Item};
use lsp_types::{
    CodeAction, CodeActionKind, DocumentSymbol, Range, SymbolKind, TextEdit, Url, WorkspaceEdit,
};

use crate::finding::Finding;
use crate::text::Text;

/// The kind of a definition.
pub(crate) fn kind(item: &Item) -> SymbolKind {
    match item {
        Item::Def(_) | Item::Alias(_) => SymbolKind::FUNCTION,
        Item::Init(_) => SymbolKind::STRUCT,
        Item::Arch(_) => SymbolKind::CLASS,
    }
}

/// The keyword of a definition.
fn word(item: &Item) -> &'static str {
    match item {
        Item::Def(def) => def.kind.word(),
        Item::Alias(alias) => alias.kind.word(),
        Item::Init(_) => "init",
        Item::Arch(_) => "arch",
    }
}

/// The definitions of a document.
pub(crate) fn symbols(text: &Text) -> Vec<DocumentSymbol> {
    let (ast, _) = dsl::parse(FileId(0), text.as_str());
    let range = |span: dsl::Span| text.range(span.start as usize, span.end as usize);
    ast.items
        .iter()
        .map(|item| {
            #[expect(
                deprecated,
                reason = "the protocol's type has a field that it advises against"
            )]
            DocumentSymbol {
                name: item.name().text.clone(),
                detail: Some(word(item).to_owned()),
                kind: kind(item),
                tags: None,
                deprecated: None,
                range: range(item.span()),
                selection_range: range(item.name().span),
                children: None,
            }
        })
        .collect()
}

/// The edits that format a document; none if it has errors.
pub(crate) fn format(text: &Text) -> Vec<TextEdit> {
    match dsl::format_source(FileId(0), text.as_str()) {
        Ok(new) => edit(text, &new).into_iter().collect(),
        Err(_) => Vec::new(),
    }
}

/// The edit of the stretch in which two texts differ.
fn edit(text: &Text, new: &str) -> Option<TextEdit> {
    let old = text.as_str();
    if old == new {
        return None;
    }
    let same = |pair: &(char, char)| pair.0 == pair.1;
    let length = |pairs: &mut dyn Iterator<Item = (char, char)>| -> usize {
        pairs.take_while(same).map(|(c, _)| c.len_utf8()).sum()
    };
    let before = length(&mut old.chars().zip(new.chars()));
    let (rest, new_rest) = (old.get(before..)?, new.get(before..)?);
    let after = length(&mut rest.chars().rev().zip(new_rest.chars().rev()));
    let range = text.range(before, old.len() - after);
    Some(TextEdit { range, new_text: new_rest.get(..new_rest.len() - after)?.to_owned() })
}

/// The corrections of findings in a range.
pub(crate) fn corrections(
    url: &Url,
    text: &Text,
    findings: &[Finding],
    range: Range,
) -> Vec<CodeAction> {
    let (from, to) = (text.offset(range.start), text.offset(range.end));
    let in_range = findings.iter().filter(|finding| finding.start <= to && from <= finding.end);
    in_range
        .filter_map(|finding| {
            let new_text = finding.instead.clone()?;
            let (mut start, mut end) = (finding.start, finding.end);
            let written = text.as_str().get(start..end).unwrap_or("");
            // The quotes of a path stay.
            if written.len() > 1 && written.starts_with('"') && written.ends_with('"') {
                (start, end) = (start + 1, end - 1);
            }
            let title = format!("Change to `{new_text}`");
            let edit = TextEdit { range: text.range(start, end), new_text };
            let changes = std::iter::once((url.clone(), vec![edit])).collect();
            Some(CodeAction {
                title,
                kind: Some(CodeActionKind::QUICKFIX),
                edit: Some(WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() }),
                is_preferred: Some(true),
                ..CodeAction::default()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Encoding;

    #[test]
    fn formatting_changes_only_what_differs() {
        let text = "// é𝄞\nblock f(x) {\n  x }\n".to_owned();
        let text = Text::new(text, Encoding::Utf16);
        let edits = format(&text);
        let [edit] = edits.as_slice() else { panic!("{edits:?}") };
        assert_eq!((edit.range.start.line, edit.new_text.as_str()), (2, "\n"));
        let mut done = text.clone();
        done.apply(&lsp_types::TextDocumentContentChangeEvent {
            range: Some(edit.range),
            range_length: None,
            text: edit.new_text.clone(),
        });
        assert_eq!(done.as_str(), dsl::format_source(FileId(0), text.as_str()).unwrap());
        assert!(format(&done).is_empty());
        let broken = Text::new("block f(x) {".to_owned(), Encoding::Utf16);
        assert!(format(&broken).is_empty());
    }
}
