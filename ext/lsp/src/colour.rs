//! Semantic tokens: the class of every word, by its meaning.

use dsl::{TokenClass, tokens};
use lsp_types::{SemanticToken, SemanticTokenModifier, SemanticTokenType, SemanticTokensLegend};

use crate::index::{LocalKind, Target};
use crate::model::{Model, Thing, home};
use crate::text::Text;

const TYPES: [SemanticTokenType; 12] = [
    SemanticTokenType::KEYWORD,
    SemanticTokenType::COMMENT,
    SemanticTokenType::STRING,
    SemanticTokenType::NUMBER,
    SemanticTokenType::OPERATOR,
    SemanticTokenType::FUNCTION,
    SemanticTokenType::CLASS,
    SemanticTokenType::PARAMETER,
    SemanticTokenType::VARIABLE,
    SemanticTokenType::PROPERTY,
    SemanticTokenType::ENUM_MEMBER,
    SemanticTokenType::STRUCT,
];

const MODIFIERS: [SemanticTokenModifier; 4] = [
    SemanticTokenModifier::DECLARATION,
    SemanticTokenModifier::DEFAULT_LIBRARY,
    SemanticTokenModifier::DOCUMENTATION,
    SemanticTokenModifier::READONLY,
];

/// The names of the numbers in a list of tokens.
pub(crate) fn legend() -> SemanticTokensLegend {
    SemanticTokensLegend { token_types: TYPES.to_vec(), token_modifiers: MODIFIERS.to_vec() }
}

fn bit(modifier: &SemanticTokenModifier) -> u32 {
    MODIFIERS.iter().position(|known| known == modifier).map_or(0, |at| 1 << at)
}

/// The tokens of a document.
pub(crate) fn colours(model: &Model, text: &Text) -> Vec<SemanticToken> {
    let mut out = Vec::new();
    let (mut line, mut column) = (0, 0);
    for token in tokens(&model.text) {
        let occurrence =
            model.index.binary_search_by_key(&token.start, |occurrence| occurrence.start);
        let occurrence = occurrence.ok().and_then(|at| model.index.get(at));
        let (kind, modifiers) = match (token.class, occurrence) {
            (TokenClass::Comment, _) => (SemanticTokenType::COMMENT, 0),
            (TokenClass::Doc, _) => {
                (SemanticTokenType::COMMENT, bit(&SemanticTokenModifier::DOCUMENTATION))
            }
            (TokenClass::Text, _) => (SemanticTokenType::STRING, 0),
            (TokenClass::Number, _) => (SemanticTokenType::NUMBER, 0),
            (TokenClass::Name | TokenClass::Soft, Some(occurrence)) => {
                let (kind, mut modifiers) = class(model, &occurrence.target);
                if occurrence.binds {
                    modifiers |= bit(&SemanticTokenModifier::DECLARATION);
                }
                (kind, modifiers)
            }
            (TokenClass::Reserved | TokenClass::Soft, _) => (SemanticTokenType::KEYWORD, 0),
            (TokenClass::Sign, _) => {
                let sign = model.text.get(token.start..token.end).unwrap_or("");
                if sign.starts_with(['(', ')', '[', ']', '{', '}', ',', ';', '.']) {
                    continue;
                }
                (SemanticTokenType::OPERATOR, 0)
            }
            (TokenClass::Name | TokenClass::Bad, _) => continue,
        };
        let (start, end) = (text.position(token.start), text.position(token.end));
        if start.line != end.line || end.character <= start.character {
            continue;
        }
        let delta_line = start.line - line;
        let delta_start = if delta_line == 0 { start.character - column } else { start.character };
        (line, column) = (start.line, start.character);
        let kind = TYPES.iter().position(|known| *known == kind).unwrap_or(0);
        out.push(SemanticToken {
            delta_line,
            delta_start,
            length: end.character - start.character,
            token_type: kind as u32,
            token_modifiers_bitset: modifiers,
        });
    }
    out
}

fn class(model: &Model, target: &Target) -> (SemanticTokenType, u32) {
    let library = bit(&SemanticTokenModifier::DEFAULT_LIBRARY);
    match target {
        Target::Local(local) => match local.kind {
            LocalKind::Tensor | LocalKind::Config => (SemanticTokenType::PARAMETER, 0),
            LocalKind::Let | LocalKind::Carry => (SemanticTokenType::VARIABLE, 0),
            LocalKind::Param | LocalKind::Share | LocalKind::Instance => {
                (SemanticTokenType::PROPERTY, 0)
            }
        },
        Target::Definition(_) | Target::Imported(..) => match model.thing(target, None) {
            Some(Thing::Entity(entity)) => {
                let is_of_program = model.loaded.program.files().contains(&home(&entity));
                let modifiers = if is_of_program { 0 } else { library };
                let kind = match crate::model::word(&entity) {
                    "arch" => SemanticTokenType::CLASS,
                    "init" => SemanticTokenType::STRUCT,
                    _ => SemanticTokenType::FUNCTION,
                };
                (kind, modifiers)
            }
            Some(_) | None => (SemanticTokenType::VARIABLE, 0),
        },
        Target::Primitive(_) => (SemanticTokenType::FUNCTION, library),
        Target::BuiltIn(name) => match compiler::op::WORDS.contains(&name.as_str()) {
            true => (SemanticTokenType::ENUM_MEMBER, library),
            false => (SemanticTokenType::FUNCTION, library),
        },
        Target::ArchField(_) => {
            (SemanticTokenType::VARIABLE, bit(&SemanticTokenModifier::READONLY))
        }
        Target::Setting(..) | Target::Role(_) => (SemanticTokenType::PROPERTY, 0),
        Target::Slot(..) => (SemanticTokenType::ENUM_MEMBER, 0),
        Target::File(_) => (SemanticTokenType::STRING, 0),
    }
}
