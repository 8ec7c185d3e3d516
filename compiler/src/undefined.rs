//! Reports names that nothing defines, even in definitions that no arch uses. A suggestion is valid at its place, and
//! is never the definition itself.

use dsl::limits::MAX_ERRORS;
use dsl::{Ast, Diagnostic, Diagnostics, FileId, Item};

use crate::diag::{self, Use};
use crate::names::{ARCH_NAMES, FUNCTIONS, Mention, Walk};
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
        for mention in &walk.mentions {
            if is_known(library, file, &walk, mention) {
                continue;
            }
            unknown += 1;
            if unknown > MAX_ERRORS {
                return;
            }
            diagnostics.push(unknown_name(library, file, item, &walk, mention));
        }
    }
}

fn is_known(library: &Library, file: FileId, walk: &Walk, mention: &Mention) -> bool {
    let text = mention.name.text.as_str();
    library.lookup(file, text).is_some()
        || op::find(text).is_some()
        || match mention.context {
            Use::Call => FUNCTIONS.contains(&text) || InitRule::NAMES.contains(&text),
            Use::Value => op::WORDS.contains(&text) || InitRule::NAMES.contains(&text),
            Use::Def => {
                walk.bases.contains(&mention.name.span) && library.arch(file, text).is_some()
            }
        }
}

/// The error, with suggestions that are valid in its place.
fn unknown_name(
    library: &Library,
    file: FileId,
    item: &Item,
    walk: &Walk,
    Mention { name, context, bound }: &Mention,
) -> Diagnostic {
    // Do not suggest the definition itself: the language has no recursion.
    let mut visible: Vec<&str> = library.visible(file);
    visible.retain(|known| *known != item.name().text);
    if walk.tables.contains(&name.span) {
        let table = |name: &&str| matches!(library.lookup(file, name), Some(Entity::Init(..)));
        visible.retain(table);
        return diag::unknown_init_table(name, &visible);
    }
    let base = walk.bases.contains(&name.span);
    visible.retain(|known| match library.lookup(file, known) {
        _ if base => library.arch(file, known).is_some(),
        Some(Entity::Def(_) | Entity::Alias(..)) | None => true,
        Some(Entity::Init(..) | Entity::Arch(..)) => false,
    });
    if base {
        return diag::unknown_name(name, *context, &visible);
    }
    let before = walk.bound.log.iter().take(*bound).map(|(_, name)| name);
    let callable = |name: &&String| *context == Use::Value || walk.shared.contains(*name);
    visible.extend(before.filter(callable).map(String::as_str));
    visible.extend(FUNCTIONS);
    visible.extend(InitRule::NAMES);
    if *context == Use::Value {
        visible.extend(ARCH_NAMES);
        visible.extend(op::WORDS);
    }
    diag::unknown_name(name, *context, &visible)
}
