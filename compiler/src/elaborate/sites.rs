//! Numbers the calls of one name in a definition, by what reads what: neither the order of independent statements, nor
//! a branch that is not taken, nor anything inside a callee changes a call's number.

use std::collections::BTreeMap;

use dsl::{Body, Expr, ExprKind, Name, Span, Statement};

/// The number of each call and slot among those of its name, from 1, by the place of its callee's or slot's name.
pub(super) type Sites = BTreeMap<Span, u32>;

/// The numbers of a definition's calls.
pub(super) fn sites(body: &Body) -> Sites {
    let mut flow = Flow::default();
    flow.statements(&body.statements);
    let first_root = flow.unit(|flow| body.result.iter().for_each(|expr| flow.expr(expr)));
    // What a carried tensor alone needs comes next, then what nothing reads.
    let carried = std::mem::take(&mut flow.carried);
    let passed = carried.into_keys().filter_map(|name| flow.bound.get(&name).copied());
    let roots: Vec<usize> = [first_root].into_iter().chain(passed).collect();
    let rest = 0..flow.units.len();
    flow.numbered(roots.into_iter().chain(rest))
}

/// What evaluating an expression meets, in order.
enum Met<'a> {
    /// A name that this unit binds.
    Unit(usize),
    /// A call or a slot, after its arguments.
    Site(&'a str, Span),
}

/// The units of a body (statements, results, names that a branch may bind again) and what each meets.
#[derive(Default)]
struct Flow<'a> {
    units: Vec<Vec<Met<'a>>>,
    /// The unit being read.
    open: Vec<Met<'a>>,
    bound: BTreeMap<String, usize>,
    /// The names bound in the branch being read, with what each was before.
    branch: BTreeMap<String, Option<usize>>,
    carried: BTreeMap<String, ()>,
}

impl<'a> Flow<'a> {
    fn unit(&mut self, read: impl FnOnce(&mut Self)) -> usize {
        let outer = std::mem::take(&mut self.open);
        read(self);
        let met = std::mem::replace(&mut self.open, outer);
        self.units.push(met);
        self.units.len() - 1
    }

    fn bind(&mut self, name: &str, unit: usize) {
        let before = self.bound.insert(name.to_owned(), unit);
        self.branch.entry(name.to_owned()).or_insert(before);
    }

    fn statements(&mut self, statements: &'a [Statement]) {
        for statement in statements {
            match statement {
                Statement::Let { names, value, span: _ } => {
                    let unit = self.unit(|flow| flow.expr(value));
                    names.iter().for_each(|name| self.bind(&name.text, unit));
                }
                Statement::Carry { name, value, otherwise, span: _ } => {
                    let unit = self.unit(|flow| flow.expr(value));
                    self.bind(&name.text, unit);
                    self.carried.insert(name.text.clone(), ());
                    self.branches([&[], otherwise]);
                }
                Statement::If { condition: _, then, otherwise, span: _ } => {
                    self.branches([then, otherwise]);
                }
                Statement::Param { .. } | Statement::Share { .. } => {}
            }
        }
    }

    /// Reads both branches. A name that either binds again then stands for what it may be.
    fn branches(&mut self, branches: [&'a [Statement]; 2]) {
        let outer = std::mem::take(&mut self.branch);
        let mut may_be: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut before: BTreeMap<String, Option<usize>> = BTreeMap::new();
        for branch in branches {
            self.statements(branch);
            for (name, earlier) in std::mem::take(&mut self.branch) {
                let bound = match earlier {
                    Some(unit) => self.bound.insert(name.clone(), unit),
                    None => self.bound.remove(&name),
                };
                may_be.entry(name.clone()).or_default().extend(bound);
                before.insert(name, earlier);
            }
        }
        self.branch = outer;
        for (name, units) in may_be {
            let units = units.into_iter().chain(before.remove(&name).flatten());
            let met: Vec<Met<'a>> = units.map(Met::Unit).collect();
            let unit = self.unit(|flow| flow.open = met);
            self.bind(&name, unit);
        }
    }

    fn expr(&mut self, expr: &'a Expr) {
        match &expr.kind {
            ExprKind::Int(_)
            | ExprKind::Decimal(_)
            | ExprKind::Bool(_)
            | ExprKind::Applied { .. } => {}
            ExprKind::Name(name) => self.open.extend(self.bound.get(name).copied().map(Met::Unit)),
            ExprKind::Call { callee, instance, args } => {
                args.iter().for_each(|arg| self.expr(&arg.value));
                let name: &Name = instance.as_ref().unwrap_or(callee);
                self.open.push(Met::Site(&name.text, callee.span));
            }
            ExprKind::Slot { name, args } => {
                args.iter().for_each(|arg| self.expr(arg));
                self.open.push(Met::Site(&name.text, name.span));
            }
            ExprKind::Unary(_, inner) => self.expr(inner),
            ExprKind::Binary(_, left, right) => {
                self.expr(left);
                self.expr(right);
            }
        }
    }

    /// Numbers sites depth first from these units. The stack is explicit: bodies may be long chains.
    fn numbered(&self, roots: impl Iterator<Item = usize>) -> Sites {
        let mut numbers = Sites::new();
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        let mut seen = vec![false; self.units.len()];
        for root in roots {
            let mut stack = vec![(root, 0)];
            while let Some((unit, at)) = stack.pop() {
                if at == 0 && std::mem::replace(&mut seen[unit], true) {
                    continue;
                }
                let Some(met) = self.units[unit].get(at) else { continue };
                stack.push((unit, at + 1));
                match met {
                    Met::Unit(inner) => stack.push((*inner, 0)),
                    Met::Site(name, span) => {
                        let count = counts.entry(name).or_insert(0);
                        *count += 1;
                        numbers.insert(*span, *count);
                    }
                }
            }
        }
        numbers
    }
}
