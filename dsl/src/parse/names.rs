//! Reports names of one scope that are equal or differ only in case. The compiler checks imported names.

use std::collections::BTreeMap;

use crate::diag::{Diagnostics, syntax};
use crate::{Arg, Ast, Entry, Expr, ExprKind, Item, Name, Span, Statement};

/// Lower-case name → the name as first written, and its place.
type Scope = BTreeMap<String, (String, Span)>;

/// Whether writing a name again is an error or means the same thing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Refused,
    Fine,
}

pub(super) fn check(ast: &Ast, out: &mut Diagnostics) {
    let mut file = Scope::new();
    for import in &ast.imports {
        for name in &import.names {
            add(&mut file, name.alias.as_ref().unwrap_or(&name.name), Again::Refused, out);
        }
    }
    for item in &ast.items {
        let name = match item {
            Item::Def(def) => &def.name,
            Item::Alias(alias) => &alias.name,
            Item::Init(table) => &table.name,
            Item::Arch(arch) => &arch.name,
        };
        add(&mut file, name, Again::Refused, out);
        if let Item::Def(def) = item {
            let mut scopes = Scopes::default();
            let config = def.config.iter().map(|param| &param.name);
            for name in def.tensors.iter().chain(config) {
                add(&mut scopes.values, name, Again::Refused, out);
            }
            statements(&def.body.statements, &mut scopes, out);
            for result in &def.body.result {
                instances(result, &mut scopes.paths, out);
            }
        }
    }
}

/// The names in a body: values, and the parts of parameter paths.
#[derive(Default)]
struct Scopes {
    values: Scope,
    paths: Scope,
}

fn statements(list: &[Statement], scopes: &mut Scopes, out: &mut Diagnostics) {
    for statement in list {
        match statement {
            Statement::Let { names, value, .. } => {
                for name in names {
                    add(&mut scopes.values, name, Again::Fine, out);
                }
                instances(value, &mut scopes.paths, out);
            }
            Statement::Param { name, .. } | Statement::Share { name, .. } => {
                let before = out.len();
                add(&mut scopes.values, name, Again::Fine, out);
                // The name is in both scopes, but one report is enough.
                let reported = out.len() > before;
                add(&mut scopes.paths, name, Again::Fine, out);
                out.truncate(if reported { before + 1 } else { out.len() });
            }
            Statement::Carry { name, value, otherwise, .. } => {
                add(&mut scopes.values, name, Again::Fine, out);
                instances(value, &mut scopes.paths, out);
                statements(otherwise, scopes, out);
            }
            Statement::If { then, otherwise, .. } => {
                statements(then, scopes, out);
                statements(otherwise, scopes, out);
            }
        }
    }
}

/// The instance names in an expression.
fn instances(expr: &Expr, scope: &mut Scope, out: &mut Diagnostics) {
    match &expr.kind {
        ExprKind::Int(_) | ExprKind::Decimal(_) | ExprKind::Bool(_) | ExprKind::Name(_) => {}
        ExprKind::Applied { entries, .. } => {
            for entry in entries {
                if let Entry::Set { value, .. } | Entry::Replace { value, .. } = entry {
                    instances(value, scope, out);
                }
            }
        }
        ExprKind::Call { instance, args, .. } => {
            if let Some(name) = instance {
                add(scope, name, Again::Fine, out);
            }
            for Arg { value, .. } in args {
                instances(value, scope, out);
            }
        }
        ExprKind::Slot { args, .. } => {
            for arg in args {
                instances(arg, scope, out);
            }
        }
        ExprKind::Unary(_, operand) => instances(operand, scope, out),
        ExprKind::Binary(_, left, right) => {
            instances(left, scope, out);
            instances(right, scope, out);
        }
    }
}

fn add(scope: &mut Scope, name: &Name, again: Again, out: &mut Diagnostics) {
    let key = name.text.to_ascii_lowercase();
    match scope.get(&key) {
        None => {
            scope.insert(key, (name.text.clone(), name.span));
        }
        Some((first, span)) if *first != name.text => {
            out.push(syntax::case_clash(name.span, &name.text, first, *span));
        }
        Some((_, span)) if again == Again::Refused => {
            out.push(syntax::duplicate_name(name.span, &name.text, *span));
        }
        Some(_) => {}
    }
}
