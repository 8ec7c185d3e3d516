//! What a client can show, from the capabilities that it names.

use lsp_types::{ClientCapabilities, MarkupContent, MarkupKind};

use crate::text::Encoding;

/// The abilities that answers depend on. A client without a capability gets the older form.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Client {
    /// What it counts columns in.
    pub(crate) encoding: Encoding,
    /// Whether it shows Markdown in a hover.
    pub(crate) hover_markdown: bool,
    /// Whether it shows Markdown beside a completion.
    pub(crate) completion_markdown: bool,
    /// Whether it takes the symbols of a document as a tree.
    pub(crate) symbol_tree: bool,
    /// Whether it takes code actions that are not commands.
    pub(crate) code_actions: bool,
    /// Whether it asks what can be renamed before it asks for a new name.
    pub(crate) prepares_rename: bool,
    /// Whether it shows other places beside a diagnostic.
    pub(crate) related: bool,
    /// Whether it reads the version that diagnostics are about.
    pub(crate) versions: bool,
    /// Whether it tells of files that change on the disk, if it is asked to.
    pub(crate) watches: bool,
}

impl Client {
    /// The abilities of a client.
    pub(crate) fn new(capabilities: &ClientCapabilities) -> Client {
        let general = capabilities.general.as_ref();
        let offered = general.and_then(|general| general.position_encodings.as_deref());
        let document = capabilities.text_document.clone().unwrap_or_default();
        let has_markdown = |kinds: Option<Vec<MarkupKind>>| {
            kinds.is_some_and(|k| k.contains(&MarkupKind::Markdown))
        };
        let item = document.completion.and_then(|completion| completion.completion_item);
        let symbols = document.document_symbol.unwrap_or_default();
        let diagnostics = document.publish_diagnostics.unwrap_or_default();
        let workspace = capabilities.workspace.clone().unwrap_or_default();
        let watched = workspace.did_change_watched_files.unwrap_or_default();
        Client {
            encoding: Encoding::choose(offered),
            hover_markdown: has_markdown(document.hover.and_then(|hover| hover.content_format)),
            completion_markdown: has_markdown(item.and_then(|item| item.documentation_format)),
            symbol_tree: symbols.hierarchical_document_symbol_support.unwrap_or(false),
            code_actions: document
                .code_action
                .is_some_and(|action| action.code_action_literal_support.is_some()),
            prepares_rename: document
                .rename
                .and_then(|rename| rename.prepare_support)
                .unwrap_or(false),
            related: diagnostics.related_information.unwrap_or(false),
            versions: diagnostics.version_support.unwrap_or(false),
            watches: watched.dynamic_registration.unwrap_or(false),
        }
    }

    /// The content of a hover.
    pub(crate) fn hover(self, markdown: String) -> MarkupContent {
        markup(self.hover_markdown, markdown)
    }
}

/// Markdown as it is, or as plain text.
pub(crate) fn markup(is_markdown: bool, markdown: String) -> MarkupContent {
    match is_markdown {
        true => MarkupContent { kind: MarkupKind::Markdown, value: markdown },
        false => MarkupContent { kind: MarkupKind::PlainText, value: plain(&markdown) },
    }
}

/// Markdown without fences and marks of code and emphasis.
fn plain(markdown: &str) -> String {
    let mut in_code = false;
    let mut out = Vec::new();
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if in_code {
            out.push(line.to_owned());
        } else {
            out.push(line.replace("**", "").replace('`', ""));
        }
    }
    out.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_has_no_marks_outside_of_code() {
        let text = "**a** `b`\n```canon\nx = `y`\n```\nc";
        assert_eq!(plain(text), "a b\nx = `y`\nc");
    }
}
