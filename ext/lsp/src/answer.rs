//! Answers the questions of a client from what is known now. The list of capabilities names exactly the requests that
//! are answered here.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use dsl::FileId;
use lsp_server::{ErrorCode, Request};
use lsp_types::request::{self, Request as _};
use lsp_types::{
    CodeActionOrCommand, CodeActionParams, CompletionList, CompletionOptions, CompletionParams,
    DocumentFormattingParams, DocumentHighlight, DocumentHighlightKind, DocumentHighlightParams,
    DocumentSymbolParams, Documentation, GotoDefinitionParams, Hover, HoverContents, HoverParams,
    Location, OneOf, PrepareRenameResponse, ReferenceParams, RenameOptions, RenameParams,
    SemanticTokens, SemanticTokensFullOptions, SemanticTokensOptions, SemanticTokensParams,
    ServerCapabilities, SymbolInformation, SymbolKind, TextDocumentPositionParams,
    TextDocumentSyncKind, TextDocumentSyncOptions, TextEdit, Url, WorkspaceEdit,
    WorkspaceFoldersServerCapabilities, WorkspaceServerCapabilities, WorkspaceSymbolParams,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::{Client, markup};
use crate::colour::{colours, legend};
use crate::complete::complete;
use crate::define::definition;
use crate::document::OpenDocument;
use crate::hover::hover;
use crate::model::Model;
use crate::outline::{corrections, format, kind, symbols};
use crate::rename::{UseSite, highlights, prepare, references, rename};
use crate::store::{DocumentKind, Store};
use crate::tables::Table;
use crate::text::Text;
use crate::view::View;

/// Most definitions in a list of the whole workspace.
const MAX_SYMBOLS: usize = 256;

/// What a question is answered from.
pub(crate) struct Handler<'a> {
    /// All files.
    pub(crate) store: &'a Store,
    /// The open documents by name.
    pub(crate) documents: &'a mut BTreeMap<String, OpenDocument>,
    /// What the client can show.
    pub(crate) client: Client,
}

type Failed = (ErrorCode, String);

/// What this server can do.
pub(crate) fn capabilities(client: Client) -> ServerCapabilities {
    let triggers = [".", "\"", "/", "#", "["].map(str::to_owned).to_vec();
    ServerCapabilities {
        position_encoding: Some(client.encoding.kind()),
        text_document_sync: Some(
            TextDocumentSyncOptions {
                open_close: Some(true),
                change: Some(TextDocumentSyncKind::INCREMENTAL),
                save: Some(true.into()),
                ..TextDocumentSyncOptions::default()
            }
            .into(),
        ),
        hover_provider: Some(true.into()),
        definition_provider: Some(OneOf::Left(true)),
        references_provider: Some(OneOf::Left(true)),
        document_highlight_provider: Some(OneOf::Left(true)),
        completion_provider: Some(CompletionOptions {
            trigger_characters: Some(triggers),
            ..CompletionOptions::default()
        }),
        rename_provider: Some(match client.prepares_rename {
            true => OneOf::Right(RenameOptions {
                prepare_provider: Some(true),
                work_done_progress_options: Default::default(),
            }),
            false => OneOf::Left(true),
        }),
        document_formatting_provider: Some(OneOf::Left(true)),
        document_symbol_provider: Some(OneOf::Left(true)),
        workspace_symbol_provider: Some(OneOf::Left(true)),
        workspace: Some(WorkspaceServerCapabilities {
            workspace_folders: Some(WorkspaceFoldersServerCapabilities {
                supported: Some(true),
                change_notifications: Some(OneOf::Left(true)),
            }),
            file_operations: None,
        }),
        code_action_provider: Some(true.into()),
        semantic_tokens_provider: Some(
            SemanticTokensOptions {
                legend: legend(),
                full: Some(SemanticTokensFullOptions::Bool(true)),
                ..SemanticTokensOptions::default()
            }
            .into(),
        ),
        ..ServerCapabilities::default()
    }
}

/// Answers a question.
pub(crate) fn answer(mut handler: Handler<'_>, request: &Request) -> Result<Value, Failed> {
    let handler = &mut handler;
    match request.method.as_str() {
        request::HoverRequest::METHOD => handler.hover(read(request)?),
        request::GotoDefinition::METHOD => handler.definition(read(request)?),
        request::References::METHOD => handler.references(read(request)?),
        request::DocumentHighlightRequest::METHOD => handler.highlights(read(request)?),
        request::Completion::METHOD => handler.completion(read(request)?),
        request::PrepareRenameRequest::METHOD => handler.prepare_rename(read(request)?),
        request::Rename::METHOD => handler.rename(read(request)?),
        request::Formatting::METHOD => handler.formatting(read(request)?),
        request::DocumentSymbolRequest::METHOD => handler.symbols(read(request)?),
        request::WorkspaceSymbolRequest::METHOD => handler.all_symbols(read(request)?),
        request::CodeActionRequest::METHOD => handler.actions(read(request)?),
        request::SemanticTokensFullRequest::METHOD => handler.colours(read(request)?),
        request::Initialize::METHOD => {
            Err((ErrorCode::InvalidRequest, "the server is initialized already".to_owned()))
        }
        other => Err((ErrorCode::MethodNotFound, format!("canonc does not answer `{other}`"))),
    }
}

fn read<P: DeserializeOwned>(request: &Request) -> Result<P, Failed> {
    serde_json::from_value(request.params.clone())
        .map_err(|error| (ErrorCode::InvalidParams, error.to_string()))
}

fn to_json(value: impl Serialize) -> Result<Value, Failed> {
    serde_json::to_value(value).map_err(|error| (ErrorCode::InternalError, error.to_string()))
}

fn information(
    name: String,
    kind: SymbolKind,
    location: Location,
    container_name: Option<String>,
) -> SymbolInformation {
    #[expect(deprecated, reason = "the protocol's type has a field that it advises against")]
    SymbolInformation { name, kind, tags: None, deprecated: None, location, container_name }
}

fn refused(message: String) -> Failed {
    (ErrorCode::RequestFailed, message)
}

impl Handler<'_> {
    fn document(&mut self, url: &Url) -> Option<(String, &mut OpenDocument)> {
        let name = self.store.name_of(url);
        let document = self.documents.get_mut(&name)?;
        Some((name, document))
    }

    /// Answers about a cursor in a `.canon` document.
    fn at<T>(
        &mut self,
        cursor: &TextDocumentPositionParams,
        answer: impl FnOnce(&View<'_>, usize, bool) -> T,
    ) -> Option<T> {
        let (store, encoding) = (self.store, self.client.encoding);
        let (name, document) = self.document(&cursor.text_document.uri)?;
        let offset = document.text.offset(cursor.position);
        let (model, at) = document.model_at(&name, store, offset)?;
        let is_today = *model.text == *document.shared;
        let view = View { store, model: &model, facts: document.facts(), encoding };
        Some(answer(&view, at, is_today))
    }

    /// Answers about a cursor in a recipe or a lock.
    fn in_table<T>(
        &mut self,
        cursor: &TextDocumentPositionParams,
        answer: impl FnOnce(&Table<'_>, usize) -> T,
    ) -> Option<T> {
        let store = self.store;
        let (name, document) = self.document(&cursor.text_document.uri)?;
        let kind = document.kind.filter(|kind| *kind != DocumentKind::Canon)?;
        let offset = document.text.offset(cursor.position);
        let (text, experiments) = (&document.text, document.experiments.as_slice());
        let table = Table { name: &name, kind, text, experiments, store };
        Some(answer(&table, offset))
    }

    fn hover(&mut self, params: HoverParams) -> Result<Value, Failed> {
        let cursor = params.text_document_position_params;
        let text_and_range = self.at(&cursor, |view, at, is_today| {
            let (text, start, end) = hover(view, at)?;
            Some((text, is_today.then_some((start, end))))
        });
        let text_and_range = match text_and_range {
            Some(text_and_range) => text_and_range,
            None => self
                .in_table(&cursor, |table, at| {
                    table.hover(at).map(|(text, start, end)| (text, Some((start, end))))
                })
                .flatten(),
        };
        let Some((value, range)) = text_and_range else { return Ok(Value::Null) };
        let document = self.document(&cursor.text_document.uri);
        let range = range
            .zip(document)
            .map(|((start, end), (_, document))| document.text.range(start, end));
        let contents = self.client.hover(value);
        to_json(Hover { contents: HoverContents::Markup(contents), range })
    }

    fn definition(&mut self, params: GotoDefinitionParams) -> Result<Value, Failed> {
        let cursor = params.text_document_position_params;
        let locations = self.at(&cursor, |view, at, _| definition(view, at));
        let locations = match locations {
            Some(locations) => locations,
            None => self.in_table(&cursor, |table, at| table.definition(at)).unwrap_or_default(),
        };
        to_json(locations)
    }

    fn references(&mut self, params: ReferenceParams) -> Result<Value, Failed> {
        let uses = self.at(&params.text_document_position, |view, at, _| references(view, at));
        let uses = uses.unwrap_or_default();
        let locations: Vec<Location> = uses.iter().filter_map(|site| self.location(site)).collect();
        to_json(locations)
    }

    fn location(&self, site: &UseSite) -> Option<Location> {
        let text = self.store.text(&site.file)?;
        let uri = self.store.url(&site.file)?;
        let text = Text::new(text.to_string(), self.client.encoding);
        Some(Location { uri, range: text.range(site.start, site.end) })
    }

    fn highlights(&mut self, params: DocumentHighlightParams) -> Result<Value, Failed> {
        let cursor = params.text_document_position_params;
        let uses = self.at(
            &cursor,
            |view, at, is_today| {
                if is_today { highlights(view, at) } else { Vec::new() }
            },
        );
        let Some((_, document)) = self.document(&cursor.text_document.uri) else {
            return Ok(Value::Null);
        };
        let highlight = |(site, binds): (UseSite, bool)| DocumentHighlight {
            range: document.text.range(site.start, site.end),
            kind: Some(match binds {
                true => DocumentHighlightKind::WRITE,
                false => DocumentHighlightKind::READ,
            }),
        };
        to_json(uses.unwrap_or_default().into_iter().map(highlight).collect::<Vec<_>>())
    }

    fn completion(&mut self, params: CompletionParams) -> Result<Value, Failed> {
        let cursor = params.text_document_position;
        let (store, encoding) = (self.store, self.client.encoding);
        let Some((name, document)) = self.document(&cursor.text_document.uri) else {
            return Ok(Value::Null);
        };
        let offset = document.text.offset(cursor.position);
        let mut items = match document.model(&name, store) {
            Some(model) => {
                let view = View { store, model: &model, facts: document.facts(), encoding };
                complete(&view, &document.text, offset)
            }
            None => self.in_table(&cursor, |table, at| table.complete(at)).unwrap_or_default(),
        };
        if !self.client.completion_markdown {
            for item in &mut items {
                if let Some(Documentation::MarkupContent(docs)) = item.documentation.take() {
                    item.documentation =
                        Some(Documentation::MarkupContent(markup(false, docs.value)));
                }
            }
        }
        to_json(CompletionList { is_incomplete: false, items })
    }

    /// A document as it is now; a name cannot be changed in a text that does not parse.
    fn today(&mut self, cursor: &TextDocumentPositionParams) -> Result<(Rc<Model>, usize), Failed> {
        let store = self.store;
        let none = || refused("names of `.canon` files can be renamed".to_owned());
        let (name, document) = self.document(&cursor.text_document.uri).ok_or_else(none)?;
        let offset = document.text.offset(cursor.position);
        let model = document.model(&name, store).ok_or_else(none)?;
        match model.parses {
            true => Ok((model, offset)),
            false => Err(refused("the file has errors: correct them first".to_owned())),
        }
    }

    fn prepare_rename(&mut self, cursor: TextDocumentPositionParams) -> Result<Value, Failed> {
        let (model, at) = self.today(&cursor)?;
        let (store, encoding) = (self.store, self.client.encoding);
        let Some((_, document)) = self.document(&cursor.text_document.uri) else {
            return Ok(Value::Null);
        };
        let view = View { store, model: &model, facts: document.facts(), encoding };
        let (start, end) = prepare(&view, at).map_err(refused)?;
        to_json(PrepareRenameResponse::Range(document.text.range(start, end)))
    }

    fn rename(&mut self, params: RenameParams) -> Result<Value, Failed> {
        let (model, at) = self.today(&params.text_document_position)?;
        let (store, encoding) = (self.store, self.client.encoding);
        let Some((_, document)) = self.document(&params.text_document_position.text_document.uri)
        else {
            return Ok(Value::Null);
        };
        let view = View { store, model: &model, facts: document.facts(), encoding };
        let edits = rename(&view, at, &params.new_name).map_err(refused)?;
        let mut changes: HashMap<Url, Vec<TextEdit>> = HashMap::new();
        for (file, edits) in edits {
            let open = self.documents.get(&file).map(|document| document.url.clone());
            let (Some(text), Some(url)) = (store.text(&file), open.or_else(|| store.url(&file)))
            else {
                continue;
            };
            let text = Text::new(text.to_string(), encoding);
            let edit =
                |(start, end, new_text)| TextEdit { range: text.range(start, end), new_text };
            changes.insert(url, edits.into_iter().map(edit).collect());
        }
        to_json(WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() })
    }

    fn formatting(&mut self, params: DocumentFormattingParams) -> Result<Value, Failed> {
        match self.document(&params.text_document.uri) {
            Some((_, document)) if document.kind == Some(DocumentKind::Canon) => {
                to_json(format(&document.text))
            }
            Some(_) | None => Ok(Value::Null),
        }
    }

    fn symbols(&mut self, params: DocumentSymbolParams) -> Result<Value, Failed> {
        let client = self.client;
        let Some((_, document)) = self.document(&params.text_document.uri) else {
            return Ok(Value::Null);
        };
        if document.kind != Some(DocumentKind::Canon) {
            return Ok(Value::Null);
        }
        let tree = symbols(&document.text);
        if client.symbol_tree {
            return to_json(tree);
        }
        let flat = tree.into_iter().map(|symbol| {
            let location = Location { uri: document.url.clone(), range: symbol.range };
            information(symbol.name, symbol.kind, location, None)
        });
        to_json(flat.collect::<Vec<_>>())
    }

    fn all_symbols(&mut self, params: WorkspaceSymbolParams) -> Result<Value, Failed> {
        let wanted = params.query.to_lowercase();
        let mut symbols: Vec<SymbolInformation> = Vec::new();
        for file in self.store.find(&["canon"]) {
            let (Some(text), Some(uri)) = (self.store.text(&file), self.store.url(&file)) else {
                continue;
            };
            let text = Text::new(text.to_string(), self.client.encoding);
            let (ast, _) = dsl::parse(FileId(0), text.as_str());
            for item in &ast.items {
                let (name, span) = (&item.name().text, item.name().span);
                if symbols.len() >= MAX_SYMBOLS || !name.to_lowercase().contains(&wanted) {
                    continue;
                }
                let range = text.range(span.start as usize, span.end as usize);
                let location = Location { uri: uri.clone(), range };
                symbols.push(information(name.clone(), kind(item), location, Some(file.clone())));
            }
        }
        to_json(symbols)
    }

    fn actions(&mut self, params: CodeActionParams) -> Result<Value, Failed> {
        if !self.client.code_actions {
            return Ok(Value::Null);
        }
        let Some((_, document)) = self.document(&params.text_document.uri) else {
            return Ok(Value::Null);
        };
        let (url, text) = (&document.url, &document.text);
        let corrections = corrections(url, text, &document.findings, params.range);
        let corrections = corrections.into_iter().map(CodeActionOrCommand::CodeAction);
        to_json(corrections.collect::<Vec<_>>())
    }

    fn colours(&mut self, params: SemanticTokensParams) -> Result<Value, Failed> {
        let store = self.store;
        let Some((name, document)) = self.document(&params.text_document.uri) else {
            return Ok(Value::Null);
        };
        let Some(model) = document.model(&name, store) else { return Ok(Value::Null) };
        let data = colours(&model, &document.text);
        to_json(SemanticTokens { result_id: None, data })
    }
}
