//! Reports names that nothing defines, even in definitions that no arch uses. A suggestion is valid at its place, and
//! is never the definition itself.

use dsl::limits::MAX_ERRORS;
use dsl::{Ast, Diagnostics, FileId, Item};

use crate::diag::{self, Use};
use crate::names::{ARCH_NAMES, FUNCTIONS, Found, Walk};
use crate::number::InitRule;
use crate::op;
use crate::resolve::{Entity, Library};
use crate::tree::MAX_CONFIG;

/// Reports undefined names in the file, up to a readable number.
pub(crate) fn undefined(library: &Library, file: FileId, ast: &Ast, diagnostics: &mut Diagnostics) {
    let mut unknown = 0usize;
    for item in &ast.items {
        if diagnostics.len() <= MAX_ERRORS
            && let Item::Def(def) = item
            && let Some(extra) = def.config.get(MAX_CONFIG)
        {
            diagnostics.push(diag::too_much_config(&extra.name, MAX_CONFIG));
        }
        let mut walk = Walk::default();
        walk.item(item);
        for Found { name, context, bound } in walk.found {
            let text = name.text.as_str();
            let entity = library.lookup(file, text);
            let known = match context {
                Use::Call => {
                    entity.is_some()
                        || op::find(text).is_some()
                        || FUNCTIONS.contains(&text)
                        || InitRule::NAMES.contains(&text)
                }
                Use::Value => {
                    entity.is_some()
                        || op::find(text).is_some()
                        || op::WORDS.contains(&text)
                        || InitRule::NAMES.contains(&text)
                }
                Use::Def => {
                    entity.is_some()
                        || op::find(text).is_some()
                        || walk.bases.contains(&name.span) && library.arch(file, text).is_some()
                }
            };
            if !known {
                unknown += 1;
                if unknown > MAX_ERRORS {
                    return;
                }
                // Do not suggest the definition itself: the language has no recursion.
                let mut visible: Vec<&str> = library.visible(file);
                visible.retain(|known| *known != item.name().text);
                if walk.tables.contains(&name.span) {
                    let table =
                        |name: &&str| matches!(library.lookup(file, name), Some(Entity::Init(..)));
                    visible.retain(table);
                    diagnostics.push(diag::unknown_init_table(&name, &visible));
                    continue;
                }
                let base = walk.bases.contains(&name.span);
                // Suggest only names that are valid here.
                visible.retain(|known| match library.lookup(file, known) {
                    _ if base => library.arch(file, known).is_some(),
                    Some(Entity::Def(_) | Entity::Alias(..)) | None => true,
                    Some(Entity::Init(..) | Entity::Arch(..)) => false,
                });
                if base {
                    diagnostics.push(diag::unknown_name(&name, context, &visible));
                    continue;
                }
                let before = walk.bound.log.iter().take(bound).map(|(_, name)| name);
                let callable =
                    |name: &&String| context == Use::Value || walk.shared.contains(*name);
                visible.extend(before.filter(callable).map(String::as_str));
                visible.extend(FUNCTIONS);
                visible.extend(InitRule::NAMES);
                if context == Use::Value {
                    visible.extend(ARCH_NAMES);
                    visible.extend(op::WORDS);
                }
                diagnostics.push(diag::unknown_name(&name, context, &visible));
            }
        }
    }
}
