//! Rewrites an architecture: statements and definitions in another order, values bound before they are used, other
//! local names, statements that no result needs. A rewrite changes neither the computation nor a parameter's path.

use std::collections::BTreeSet;

use dsl::{Arg, Ast, Body, Def, Entry, Expr, ExprKind, FileId, Item, Name, Span, Statement};

/// xorshift64*: the test's own random numbers, so that a failing seed can be repeated.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// Primitives of one tensor, which can be bound to a name wherever they are called.
const ONE_RESULT: [&str; 12] = [
    "linear",
    "rms_norm",
    "l2_norm",
    "silu",
    "sigmoid",
    "softplus",
    "exp",
    "heads",
    "merge",
    "short_conv",
    "canon",
    "attention",
];

pub(crate) fn reordered(text: &str, seed: u64) -> String {
    let (mut ast, errors) = dsl::parse(FileId(0), text);
    assert!(errors.is_empty(), "{text}");
    let mut draws = Draws(seed.wrapping_mul(2) | 1);
    let defined: BTreeSet<String> = ast.items.iter().map(item_name).collect();
    for item in &mut ast.items {
        if let Item::Def(def) = item {
            rewrite(def, &defined, &mut draws);
        }
    }
    // The arch of a lock's text is its last item; definitions may be in any order.
    let last = ast.items.len() - 1;
    shuffle(&mut ast.items[..last], &mut draws);
    dsl::print(&Ast { comments: Vec::new(), ..ast })
}

fn item_name(item: &Item) -> String {
    match item {
        Item::Def(def) => def.name.text.clone(),
        Item::Alias(alias) => alias.name.text.clone(),
        Item::Init(table) => table.name.text.clone(),
        Item::Arch(arch) => arch.name.text.clone(),
    }
}

fn shuffle<T>(list: &mut [T], draws: &mut Draws) {
    for i in (1..list.len()).rev() {
        list.swap(i, draws.below(i + 1));
    }
}

fn rewrite(def: &mut Def, defined: &BTreeSet<String>, draws: &mut Draws) {
    let taken: BTreeSet<String> = def
        .tensors
        .iter()
        .chain(def.config.iter().map(|param| &param.name))
        .map(|name| name.text.clone())
        .chain(defined.iter().cloned())
        .chain(statement_names(&def.body.statements).binds)
        .collect();
    let mut fresh = Fresh { taken, next: 0 };
    let Body { statements, result, .. } = &mut def.body;
    let mut before = Vec::new();
    for expr in result {
        hoist_inside(expr, &mut before, &mut fresh, draws);
    }
    hoist(statements, &mut fresh, draws);
    statements.extend(before);
    if draws.coin()
        && let Some(x) = def.tensors.first()
    {
        // No result needs it, so it must have no effect.
        let x = expr(ExprKind::Name(x.text.clone()));
        let args = vec![Arg { name: None, value: x }];
        let value = expr(ExprKind::Call { callee: name("exp"), instance: None, args });
        statements.insert(0, Statement::Let { names: vec![fresh.name()], value, span: nowhere() });
    }
    permute(statements, draws);
    rename(def, defined, draws);
}

struct Fresh {
    taken: BTreeSet<String>,
    next: usize,
}

impl Fresh {
    fn name(&mut self) -> Name {
        self.next += 1;
        name(&format!("bound_{}", self.next))
    }
}

fn nowhere() -> Span {
    Span::new(FileId(0), 0, 0)
}

fn name(text: &str) -> Name {
    Name { text: text.to_owned(), span: nowhere() }
}

fn expr(kind: ExprKind) -> Expr {
    Expr { kind, span: nowhere() }
}

/// Moves some calls out of expressions and binds them to names in the statement before.
fn hoist(statements: &mut Vec<Statement>, fresh: &mut Fresh, draws: &mut Draws) {
    let mut out = Vec::new();
    for mut statement in std::mem::take(statements) {
        match &mut statement {
            Statement::Let { value, .. } => hoist_inside(value, &mut out, fresh, draws),
            Statement::If { then, otherwise, .. } => {
                hoist(then, fresh, draws);
                hoist(otherwise, fresh, draws);
            }
            Statement::Carry { otherwise, .. } => hoist(otherwise, fresh, draws),
            Statement::Param { .. } | Statement::Share { .. } => {}
        }
        out.push(statement);
    }
    *statements = out;
}

fn hoist_inside(at: &mut Expr, before: &mut Vec<Statement>, fresh: &mut Fresh, draws: &mut Draws) {
    let operands: Vec<&mut Expr> = match &mut at.kind {
        ExprKind::Call { args, .. } => {
            args.iter_mut().filter(|arg| arg.name.is_none()).map(|arg| &mut arg.value).collect()
        }
        ExprKind::Slot { args, .. } => args.iter_mut().collect(),
        ExprKind::Binary(_, left, right) => vec![left, right],
        ExprKind::Unary(_, inner) => vec![inner],
        ExprKind::Int(_)
        | ExprKind::Decimal(_)
        | ExprKind::Bool(_)
        | ExprKind::Name(_)
        | ExprKind::Applied { .. } => return,
    };
    let mut operands = operands;
    // The last first, so that bound calls are declared in another order than the expressions.
    if draws.coin() {
        operands.reverse();
    }
    for operand in operands {
        hoist_inside(operand, before, fresh, draws);
        let plain = matches!(&operand.kind, ExprKind::Call { callee, .. }
            if ONE_RESULT.contains(&callee.text.as_str()) && !fresh.taken.contains(&callee.text));
        if plain && draws.coin() {
            let bound = fresh.name();
            let value = std::mem::replace(operand, expr(ExprKind::Name(bound.text.clone())));
            before.push(Statement::Let { names: vec![bound], value, span: nowhere() });
        }
    }
}

/// Names that a statement reads, and names that it binds: values and instances.
#[derive(Default)]
struct Names {
    uses: BTreeSet<String>,
    binds: BTreeSet<String>,
}

fn statement_names(statements: &[Statement]) -> Names {
    let mut names = Names::default();
    for statement in statements {
        match statement {
            Statement::Let { names: bound, value, .. } => {
                names.binds.extend(bound.iter().map(|name| name.text.clone()));
                names.expr(value);
            }
            Statement::Param { name, dims, init, .. } => {
                names.binds.insert(name.text.clone());
                dims.iter().chain(init).for_each(|expr| names.expr(expr));
            }
            Statement::Share { name, callee, entries, .. } => {
                names.binds.insert(name.text.clone());
                names.uses.insert(callee.text.clone());
                names.entries(entries.as_deref().unwrap_or(&[]));
            }
            Statement::Carry { name, value, otherwise, .. } => {
                names.binds.insert(name.text.clone());
                names.expr(value);
                let inner = statement_names(otherwise);
                names.uses.extend(inner.uses);
                names.binds.extend(inner.binds);
            }
            Statement::If { condition, then, otherwise, .. } => {
                names.expr(condition);
                for inner in [then, otherwise].map(|branch| statement_names(branch)) {
                    names.uses.extend(inner.uses);
                    names.binds.extend(inner.binds);
                }
            }
        }
    }
    names
}

impl Names {
    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Int(_) | ExprKind::Decimal(_) | ExprKind::Bool(_) => {}
            ExprKind::Name(name) => {
                self.uses.insert(name.clone());
            }
            ExprKind::Applied { def, entries } => {
                self.uses.insert(def.text.clone());
                self.entries(entries);
            }
            ExprKind::Call { callee, instance, args } => {
                self.uses.insert(callee.text.clone());
                self.binds.extend(instance.iter().map(|name| name.text.clone()));
                args.iter().for_each(|arg| self.expr(&arg.value));
            }
            ExprKind::Slot { args, .. } => args.iter().for_each(|arg| self.expr(arg)),
            ExprKind::Unary(_, inner) => self.expr(inner),
            ExprKind::Binary(_, left, right) => {
                self.expr(left);
                self.expr(right);
            }
        }
    }

    fn entries(&mut self, entries: &[Entry]) {
        for entry in entries {
            match entry {
                Entry::Set { value, .. } | Entry::Replace { value, .. } => self.expr(value),
                Entry::Nested { entries, .. } => self.entries(entries),
                Entry::Fill { with, .. } => self.expr(with),
                Entry::Canon { entries, .. } => self.entries(entries.as_deref().unwrap_or(&[])),
                Entry::Layers { .. } | Entry::Empty { .. } => {}
            }
        }
    }

    fn meets(&self, other: &Names) -> bool {
        let share = |a: &BTreeSet<String>, b: &BTreeSet<String>| !a.is_disjoint(b);
        share(&self.binds, &other.uses)
            || share(&self.uses, &other.binds)
            || share(&self.binds, &other.binds)
    }
}

/// Another order in which each statement still follows those it depends on.
fn permute(statements: &mut Vec<Statement>, draws: &mut Draws) {
    let mut left: Vec<(Names, Statement)> = std::mem::take(statements)
        .into_iter()
        .map(|statement| (statement_names(std::slice::from_ref(&statement)), statement))
        .collect();
    while !left.is_empty() {
        let free: Vec<usize> = (0..left.len())
            .filter(|at| !left[..*at].iter().any(|(names, _)| names.meets(&left[*at].0)))
            .collect();
        let (_, mut statement) = left.remove(free[draws.below(free.len())]);
        if let Statement::If { then, otherwise, .. } = &mut statement {
            permute(then, draws);
            permute(otherwise, draws);
        }
        statements.push(statement);
    }
}

/// Renames some tensors of a definition; its callers pass them by position.
fn rename(def: &mut Def, defined: &BTreeSet<String>, draws: &mut Draws) {
    let bound = statement_names(&def.body.statements).binds;
    let mut instances = Names::default();
    def.body.result.iter().for_each(|expr| instances.expr(expr));
    let words: Vec<String> = def.tensors.iter().map(|name| name.text.clone()).collect();
    for (at, word) in words.iter().enumerate() {
        let plain = !bound.contains(word) && !instances.binds.contains(word);
        if plain && !defined.contains(word) && draws.coin() {
            let fresh = format!("taken_{at}");
            def.tensors[at].text.clone_from(&fresh);
            rename_statements(&mut def.body.statements, word, &fresh);
            def.body.result.iter_mut().for_each(|expr| rename_expr(expr, word, &fresh));
        }
    }
}

fn rename_statements(statements: &mut [Statement], from: &str, to: &str) {
    for statement in statements {
        match statement {
            Statement::Let { value, .. } => rename_expr(value, from, to),
            Statement::If { then, otherwise, .. } => {
                rename_statements(then, from, to);
                rename_statements(otherwise, from, to);
            }
            Statement::Carry { value, otherwise, .. } => {
                rename_expr(value, from, to);
                rename_statements(otherwise, from, to);
            }
            // A tensor is not configuration.
            Statement::Param { .. } | Statement::Share { .. } => {}
        }
    }
}

fn rename_expr(at: &mut Expr, from: &str, to: &str) {
    match &mut at.kind {
        ExprKind::Name(name) if name == from => to.clone_into(name),
        ExprKind::Call { args, .. } => {
            args.iter_mut().for_each(|arg| rename_expr(&mut arg.value, from, to));
        }
        ExprKind::Slot { args, .. } => args.iter_mut().for_each(|arg| rename_expr(arg, from, to)),
        ExprKind::Unary(_, inner) => rename_expr(inner, from, to),
        ExprKind::Binary(_, left, right) => {
            rename_expr(left, from, to);
            rename_expr(right, from, to);
        }
        ExprKind::Int(_)
        | ExprKind::Decimal(_)
        | ExprKind::Bool(_)
        | ExprKind::Name(_)
        | ExprKind::Applied { .. } => {}
    }
}
