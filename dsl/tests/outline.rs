//! A tree as indented lines, without places: the snapshots of good cases show it.
//!
//! The text is made from the tree's own fields, so that a printer's bug cannot hide a wrong tree. [`erased`] is the tree's
//! full Debug text without spans, for comparing trees.

use dsl::*;

pub(crate) fn outline(ast: &Ast) -> String {
    let mut out = Vec::new();
    for import in &ast.imports {
        let names = import.names.iter().map(|name| match &name.alias {
            Some(alias) => format!("{} as {}", name.name.text, alias.text),
            None => name.name.text.clone(),
        });
        out.push(format!("import {} from {:?}", joined(names), import.path));
    }
    for definition in &ast.items {
        for line in definition.docs() {
            out.push(format!("doc {line:?}"));
        }
        item(definition, &mut out);
    }
    for comment in &ast.comments {
        let trailing = if comment.trailing { "trailing " } else { "" };
        let close = if comment.before_close { "closing " } else { "" };
        out.push(format!("{trailing}{close}comment {:?}", comment.text));
    }
    out.join("\n") + "\n"
}

/// The tree without spans, as one comparable text.
pub(crate) fn erased(ast: &Ast) -> String {
    let parts = format!("{:?}{:?}", ast.imports, ast.items);
    let mut out = String::new();
    let mut rest = parts.as_str();
    while let Some(at) = rest.find("Span {") {
        out.push_str(&rest[..at]);
        let end = rest[at..].find('}').map_or(rest.len(), |end| at + end + 1);
        rest = &rest[end..];
    }
    out + rest
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn item(item: &Item, out: &mut Vec<String>) {
    match item {
        Item::Def(def) => {
            let tensors = joined(def.tensors.iter().map(|name| name.text.clone()));
            out.push(format!("{} {} takes [{tensors}]", def.kind.word(), def.name.text));
            for param in &def.config {
                let default = param.default.as_ref().map_or("required".into(), expr);
                out.push(format!("  config {}: {default}", param.name.text));
            }
            statements(&def.body.statements, "  ", out);
            out.push(format!("  result {}", joined(def.body.result.iter().map(expr))));
        }
        Item::Alias(alias) => {
            out.push(format!("alias {} {}", alias.kind.word(), alias.name.text));
            out.push(format!("  {}", expr(&alias.value)));
        }
        Item::Init(table) => {
            out.push(format!("init {}", table.name.text));
            entries(&table.entries, "  ", out);
        }
        Item::Arch(arch) => match &arch.body {
            ArchBody::Fields(fields) => {
                out.push(format!("arch {}", arch.name.text));
                entries(fields, "  ", out);
            }
            ArchBody::With { base, edits } => {
                out.push(format!("arch {} with base {}", arch.name.text, base.text));
                entries(edits, "  ", out);
            }
        },
    }
}

fn statements(list: &[Statement], pad: &str, out: &mut Vec<String>) {
    let deeper = format!("{pad}  ");
    for statement in list {
        match statement {
            Statement::Let { names, value, .. } => {
                let names = joined(names.iter().map(|name| name.text.clone()));
                out.push(format!("{pad}let {names} = {}", expr(value)));
            }
            Statement::Param { name, dims, init, .. } => {
                let init = init.as_ref().map_or("from the table".into(), expr);
                let dims = joined(dims.iter().map(expr));
                out.push(format!("{pad}param {} [{dims}] init {init}", name.text));
            }
            Statement::Share { name, callee, entries: config, .. } => {
                out.push(format!("{pad}share {} = {}", name.text, callee.text));
                entries(config.as_deref().unwrap_or_default(), &deeper, out);
            }
            Statement::Carry { name, value, otherwise, .. } => {
                out.push(format!("{pad}carry {} = {}", name.text, expr(value)));
                statements(otherwise, &deeper, out);
            }
            Statement::If { condition, then, otherwise, .. } => {
                out.push(format!("{pad}if {}", expr(condition)));
                statements(then, &deeper, out);
                out.push(format!("{pad}else"));
                statements(otherwise, &deeper, out);
            }
        }
    }
}

fn entries(list: &[Entry], pad: &str, out: &mut Vec<String>) {
    for entry in list {
        out.push(format!("{pad}{}", one_entry(entry)));
    }
}

fn config(list: &[Entry]) -> String {
    format!("{{{}}}", joined(list.iter().map(one_entry)))
}

fn one_entry(entry: &Entry) -> String {
    match entry {
        Entry::Set { path, value, .. } => format!("set {} to {}", path_text(path), expr(value)),
        Entry::Replace { path, value, .. } => {
            format!("replace {} by {}", path_text(path), expr(value))
        }
        Entry::Nested { path, entries, .. } => {
            format!("under {} {}", path_text(path), config(entries))
        }
        Entry::Layers { value, .. } => format!("layers {}", layers(value)),
        Entry::Fill { slots, with, .. } => format!("fill {} with {}", paths(slots), expr(with)),
        Entry::Canon { slots, entries, .. } => {
            format!("canon {} {}", paths(slots), entries.as_deref().map_or(String::new(), config))
        }
        Entry::Empty { slots, .. } => format!("empty {}", paths(slots)),
    }
}

fn layers(list: &LayerList) -> String {
    let count = list.count.as_ref().map_or(String::new(), |count| format!("{} x ", expr(count)));
    match &list.what {
        LayerWhat::One { share, layer } => {
            format!("{count}{}{}", if *share { "shared " } else { "" }, expr(layer))
        }
        LayerWhat::List(list) => format!("{count}[{}]", joined(list.iter().map(layers))),
    }
}

fn paths(list: &[Path]) -> String {
    format!("[{}]", joined(list.iter().map(path_text)))
}

fn path_text(path: &Path) -> String {
    let segments = path.segments.iter().map(|segment| match segment {
        Segment::Name(name) => name.text.clone(),
        Segment::Layers { select: Select::Is { path, def }, .. } => {
            format!(
                "where {path:?} is {:?}",
                def.text,
                path = path.iter().map(|n| &n.text).collect::<Vec<_>>()
            )
        }
        Segment::Layers { select, .. } => format!("{select:?}"),
    });
    segments.collect::<Vec<_>>().join(" > ")
}

fn expr(expr_: &Expr) -> String {
    match &expr_.kind {
        ExprKind::Int(value) => value.to_string(),
        ExprKind::Decimal(value) => format!("decimal {value}"),
        ExprKind::Bool(value) => value.to_string(),
        ExprKind::Name(name) => name.clone(),
        ExprKind::Applied { def, entries } => format!("{} {}", def.text, config(entries)),
        ExprKind::Call { callee, instance, args } => {
            let args = args.iter().map(|arg| match &arg.name {
                Some(name) => format!("{}: {}", name.text, expr(&arg.value)),
                None => expr(&arg.value),
            });
            let instance = instance.as_ref().map_or(String::new(), |i| format!("#{}", i.text));
            format!("{}{instance}({})", callee.text, joined(args))
        }
        ExprKind::Slot { name, args } => {
            format!("slot {}({})", name.text, joined(args.iter().map(expr)))
        }
        ExprKind::Unary(op, operand) => format!("({op:?} {})", expr(operand)),
        ExprKind::Binary(op, left, right) => format!("({op:?} {} {})", expr(left), expr(right)),
    }
}
