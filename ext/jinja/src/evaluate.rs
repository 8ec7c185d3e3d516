//! Runs a parsed template: statements, expressions, scopes, macros.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use minijinja::machinery::ast::{self, BinOpKind, CallArg, CompareOpKind, Expr, Stmt, UnaryOpKind};
use minijinja::value::ValueKind;
use regex::Regex;

use crate::arguments::Arguments;
use crate::entries::{Entries, LARGEST};
use crate::filters::{self, Evaluation};
use crate::lookup;
use crate::operators;
use crate::value::{Loop, Value};
use crate::{Environment, Undefined, methods, tests};

/// Most steps of one template, and most bytes and elements that it makes.
const STEPS: usize = 2_000_000;
const ALLOCATED: usize = 96 << 20;

/// Deepest nesting of a value.
const NESTED: usize = 128;

/// Most statements and expressions inside each other, those of called macros included.
const LEVELS: usize = 2000;

/// Deepest calls of macros.
const DEPTH: usize = 64;

/// Most elements of `range`, as in Jinja2's sandbox.
const RANGE: i128 = 100_000;

/// Functions of Jinja2 that are refused by name.
const REFUSED: &[&str] = &["cycler", "joiner", "lipsum", "self", "super"];

/// Variables, and those around them.
struct Scope {
    variables: RefCell<BTreeMap<String, Value>>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    fn inside(parent: &Rc<Scope>) -> Rc<Scope> {
        Rc::new(Scope { variables: RefCell::default(), parent: Some(Rc::clone(parent)) })
    }

    fn get(&self, name: &str) -> Option<Value> {
        let local = self.variables.borrow().get(name).cloned();
        local.or_else(|| self.parent.as_ref()?.get(name))
    }

    fn set(&self, name: &str, value: Value) {
        self.variables.borrow_mut().insert(name.to_owned(), value);
    }
}

fn length(value: &Value) -> usize {
    value.len().unwrap_or(0)
}

/// Steps that a function takes which goes through a value once.
fn cost(value: &Value) -> usize {
    match value {
        Value::Str(_) | Value::Markup(_) => length(value) / 16,
        _ => length(value),
    }
}

/// Steps that a function takes which goes through all that a value holds.
fn deep_cost(value: &Value) -> usize {
    value.measure().size / 16
}

/// A macro and the scope around it.
struct Macro<'a> {
    declaration: &'a ast::Macro<'a>,
    scope: Rc<Scope>,
}

/// What follows a statement.
#[derive(PartialEq, Eq)]
enum Flow {
    Next,
    Continue,
    Break,
}

/// One rendering.
pub(crate) struct Rendering<'a> {
    pub(crate) environment: &'a Environment,
    source: &'a str,
    global: Rc<Scope>,
    macros: RefCell<Vec<Rc<Macro<'a>>>>,
    steps: Cell<usize>,
    allocated: Cell<usize>,
    depth: Cell<usize>,
    /// Statements and expressions inside each other.
    nested: Cell<usize>,
}

impl Evaluation for Rendering<'_> {
    fn spend(&self, steps: usize) -> Result<(), String> {
        Rendering::spend(self, steps)
    }

    fn undefined(&self) -> Undefined {
        self.environment.undefined
    }

    fn is_true(&self, value: &Value) -> Result<bool, String> {
        Rendering::is_true(self, value)
    }

    fn filter(&self, name: &str, arguments: &Arguments) -> Result<Value, String> {
        Rendering::filter(self, name, arguments)
    }

    fn test(&self, name: &str, arguments: &Arguments) -> Result<bool, String> {
        Rendering::test(self, name, arguments)
    }
}

impl<'a> Rendering<'a> {
    pub(crate) fn new(
        environment: &'a Environment,
        source: &'a str,
        context: &Value,
    ) -> Result<Rendering<'a>, String> {
        let Value::Map(fields) = context else {
            return Err(format!("a template needs named values, not a {}", context.type_name()));
        };
        let names = fields
            .iter()
            .filter_map(|(key, value)| Some((key.as_str()?.to_owned(), value.clone())));
        let global = Scope { variables: RefCell::new(names.collect()), parent: None };
        Ok(Rendering {
            environment,
            source,
            global: Rc::new(global),
            macros: RefCell::default(),
            steps: Cell::new(0),
            allocated: Cell::new(0),
            depth: Cell::new(0),
            nested: Cell::new(0),
        })
    }

    /// The text of a template.
    pub(crate) fn template(&self, template: &'a ast::Template<'a>) -> Result<String, String> {
        let mut out = String::new();
        let scope = Rc::clone(&self.global);
        self.block(&template.children, &scope, &mut out)?;
        Ok(out)
    }

    /// The value of an expression.
    pub(crate) fn expression(&self, expression: &'a Expr<'a>) -> Result<Value, String> {
        let value = self.eval(expression, &Rc::clone(&self.global))?;
        self.used(&value)?;
        Ok(value)
    }

    /// Counts steps.
    fn spend(&self, steps: usize) -> Result<(), String> {
        self.steps.set(self.steps.get().saturating_add(steps));
        match self.steps.get() <= STEPS {
            true => Ok(()),
            false => Err(format!("the template takes more than {STEPS} steps")),
        }
    }

    /// Counts bytes of memory.
    fn allocate(&self, bytes: usize) -> Result<(), String> {
        self.allocated.set(self.allocated.get().saturating_add(bytes));
        match self.allocated.get() <= ALLOCATED {
            true => Ok(()),
            false => Err(format!("the template makes more than {} MiB", ALLOCATED >> 20)),
        }
    }

    /// Counts the size of a new value, and bounds what it holds.
    fn make(&self, value: Value) -> Result<Value, String> {
        let measure = value.measure();
        let shallow_size = match &value {
            Value::Str(text) | Value::Markup(text) => text.len(),
            other => other.len().unwrap_or(0).saturating_mul(size_of::<Value>()),
        };
        self.allocate(shallow_size)?;
        if measure.size > LARGEST {
            return Err(format!("a value has more than {} MiB", LARGEST >> 20));
        }
        match measure.depth <= NESTED {
            true => Ok(value),
            false => Err(format!("a value is nested more than {NESTED} deep")),
        }
    }

    /// Refuses the use of what is undefined, where that is an error.
    fn used(&self, value: &Value) -> Result<(), String> {
        match value {
            Value::Undefined(message) if self.environment.undefined == Undefined::Error => {
                Err(message.to_string())
            }
            _ => Ok(()),
        }
    }

    /// Also of what a list or tuple holds.
    fn all_used(&self, value: &Value) -> Result<(), String> {
        self.used(value)?;
        value.as_list().unwrap_or_default().iter().try_for_each(|item| self.used(item))
    }

    fn is_true(&self, value: &Value) -> Result<bool, String> {
        self.used(value)?;
        Ok(value.is_true())
    }

    fn block(
        &self,
        body: &'a [Stmt<'a>],
        scope: &Rc<Scope>,
        out: &mut String,
    ) -> Result<Flow, String> {
        for statement in body {
            let flow = self.statement(statement, scope, out)?;
            if out.len() > LARGEST {
                return Err(format!("the template writes more than {LARGEST} bytes"));
            }
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    /// The text of a part of a template.
    fn captured(&self, body: &'a [Stmt<'a>], scope: &Rc<Scope>) -> Result<String, String> {
        let mut text = String::new();
        self.block(body, scope, &mut text)?;
        Ok(text)
    }

    /// Counts one level deeper; the stack is finite.
    fn deeper(&self) -> Result<(), String> {
        self.nested.set(self.nested.get() + 1);
        match self.nested.get() <= LEVELS {
            true => Ok(()),
            false => Err(format!("statements and expressions are more than {LEVELS} deep")),
        }
    }

    fn statement(
        &self,
        statement: &'a Stmt<'a>,
        scope: &Rc<Scope>,
        out: &mut String,
    ) -> Result<Flow, String> {
        self.spend(1)?;
        self.deeper()?;
        let flow = self.one_statement(statement, scope, out)?;
        self.nested.set(self.nested.get() - 1);
        Ok(flow)
    }

    fn one_statement(
        &self,
        statement: &'a Stmt<'a>,
        scope: &Rc<Scope>,
        out: &mut String,
    ) -> Result<Flow, String> {
        let refuse = |name: &str| Err(format!("`{{% {name} %}}` is not supported by canonc"));
        match statement {
            Stmt::Template(template) => return self.block(&template.children, scope, out),
            Stmt::EmitRaw(raw) => out.push_str(raw.raw),
            Stmt::EmitExpr(emit) => self.print(&emit.expr, scope, out)?,
            Stmt::IfCond(branch) => {
                let condition = self.eval(&branch.expr, scope)?;
                let body =
                    if self.is_true(&condition)? { &branch.true_body } else { &branch.false_body };
                return self.block(body, scope, out);
            }
            Stmt::ForLoop(each) => return self.for_loop(each, scope, out),
            Stmt::WithBlock(with) => return self.with_block(with, scope, out),
            Stmt::Set(set) => {
                let value = self.eval(&set.expr, scope)?;
                self.assign(&set.target, value, scope)?;
            }
            Stmt::SetBlock(set) => {
                let mut value = Value::from(self.captured(&set.body, &Scope::inside(scope))?);
                if let Some(filter) = &set.filter {
                    value = self.filtered(filter, value, scope)?;
                }
                self.assign(&set.target, value, scope)?;
            }
            Stmt::FilterBlock(block) => {
                let text = self.captured(&block.body, &Scope::inside(scope))?;
                let value = self.filtered(&block.filter, Value::from(text), scope)?;
                self.used(&value)?;
                out.push_str(&value.text()?);
            }
            Stmt::Macro(declaration) => {
                let value = self.declare(declaration, scope)?;
                scope.set(declaration.name, value);
            }
            Stmt::CallBlock(block) => self.call_block(block, scope, out)?,
            // An extension that the harness does not have.
            Stmt::Continue(_) | Stmt::Break(_) if !self.environment.trims_blocks => {
                return refuse("break");
            }
            Stmt::Continue(_) => return Ok(Flow::Continue),
            Stmt::Break(_) => return Ok(Flow::Break),
            Stmt::Do(_) => return refuse("do"),
            Stmt::AutoEscape(_) => return refuse("autoescape"),
            Stmt::Block(_) => return refuse("block"),
            Stmt::Import(_) | Stmt::FromImport(_) => return refuse("import"),
            Stmt::Extends(_) => return refuse("extends"),
            Stmt::Include(_) => return refuse("include"),
        }
        Ok(Flow::Next)
    }

    fn print(
        &self,
        expression: &'a Expr<'a>,
        scope: &Rc<Scope>,
        out: &mut String,
    ) -> Result<(), String> {
        let value = self.eval(expression, scope)?;
        self.used(&value)?;
        match &value {
            Value::Str(text) | Value::Markup(text) => out.push_str(text),
            other => out.push_str(&other.text()?),
        }
        Ok(())
    }

    fn with_block(
        &self,
        with: &'a ast::WithBlock<'a>,
        scope: &Rc<Scope>,
        out: &mut String,
    ) -> Result<Flow, String> {
        let inside = Scope::inside(scope);
        for (target, value) in &with.assignments {
            let value = self.eval(value, scope)?;
            self.assign(target, value, &inside)?;
        }
        self.block(&with.body, &inside, out)
    }

    /// Calls a macro with the block as its `caller`.
    fn call_block(
        &self,
        block: &'a ast::CallBlock<'a>,
        scope: &Rc<Scope>,
        out: &mut String,
    ) -> Result<(), String> {
        let caller = self.declare(&block.macro_decl, scope)?;
        let callee = self.eval(&block.call.expr, scope)?;
        let mut arguments = self.arguments(None, &block.call.args, scope)?;
        arguments.keywords.push(("caller".to_owned(), caller));
        out.push_str(&self.call(&callee, &arguments)?.text()?);
        Ok(())
    }

    fn for_loop(
        &self,
        each: &'a ast::Spanned<ast::ForLoop<'a>>,
        scope: &Rc<Scope>,
        out: &mut String,
    ) -> Result<Flow, String> {
        if each.recursive {
            return Err("`{% for … recursive %}` is not supported by canonc".to_owned());
        }
        let iterated = self.eval(&each.iter, scope)?;
        self.used(&iterated)?;
        let mut items = iterated.iterate()?;
        self.spend(items.len())?;
        self.allocate(items.len().saturating_mul(2 * size_of::<Value>()))?;
        let span = each.span();
        let written = self.source.get(span.start_offset as usize..span.end_offset as usize);
        // A condition is read in each pass, unless the body asks `loop` for what comes.
        let mut in_pass = each.filter_expr.as_ref();
        if let Some(condition) = in_pass
            && written.is_none_or(|written| written.contains("loop"))
        {
            in_pass = None;
            items = self.items_where(condition, &each.target, items, scope)?;
        }
        if items.is_empty() {
            return self.block(&each.else_body, &Scope::inside(scope), out);
        }
        let mut completed = false;
        let mut state = Arc::new(Loop { items, index: 0, last: Mutex::new(None) });
        for index in 0..state.items.len() {
            self.spend(1)?;
            if let Some(item) = state.items.get(index).cloned() {
                let inside = Scope::inside(scope);
                self.advance(&mut state, index)?;
                inside.set("loop", Value::Loop(Arc::clone(&state)));
                self.assign(&each.target, item, &inside)?;
                if let Some(condition) = in_pass {
                    let holds = self.eval(condition, &inside)?;
                    if !self.is_true(&holds)? {
                        continue;
                    }
                }
                match self.block(&each.body, &inside, out)? {
                    Flow::Next => completed = true,
                    Flow::Continue => {}
                    Flow::Break => {
                        let unread = state.items.get(index + 1..).unwrap_or_default();
                        give_back(&iterated, unread);
                        break;
                    }
                }
            }
        }
        // As in Jinja2, which notes at the end of a pass that there was one.
        if !completed {
            return self.block(&each.else_body, &Scope::inside(scope), out);
        }
        Ok(Flow::Next)
    }

    /// The items for which a loop's condition holds.
    fn items_where(
        &self,
        condition: &'a Expr<'a>,
        target: &'a Expr<'a>,
        items: Vec<Value>,
        scope: &Rc<Scope>,
    ) -> Result<Vec<Value>, String> {
        let mut kept = Vec::new();
        for item in items {
            let inside = Scope::inside(scope);
            self.assign(target, item.clone(), &inside)?;
            let holds = self.eval(condition, &inside)?;
            if self.is_true(&holds)? {
                kept.push(item);
            }
        }
        Ok(kept)
    }

    /// Moves a loop's state to the next pass; to a new state if the template keeps the earlier `loop`.
    fn advance(&self, state: &mut Arc<Loop>, index: usize) -> Result<(), String> {
        if Arc::get_mut(state).is_none() {
            let last = state.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let items = state.items.clone();
            self.spend(items.len())?;
            *state = Arc::new(Loop { items, index, last: Mutex::new(last) });
        }
        if let Some(state) = Arc::get_mut(state) {
            state.index = index;
        }
        Ok(())
    }

    fn assign(&self, target: &'a Expr<'a>, value: Value, scope: &Rc<Scope>) -> Result<(), String> {
        match target {
            Expr::Var(variable) => {
                scope.set(variable.id, value);
                Ok(())
            }
            Expr::List(targets) => {
                let values = value.iterate()?;
                if values.len() != targets.items.len() {
                    return Err(format!(
                        "cannot unpack {} values into {} names",
                        values.len(),
                        targets.items.len()
                    ));
                }
                targets
                    .items
                    .iter()
                    .zip(values)
                    .try_for_each(|(target, value)| self.assign(target, value, scope))
            }
            Expr::GetAttr(attribute) => {
                let target = self.eval(&attribute.expr, scope)?;
                operators::set_attribute(&target, attribute.name, value)
            }
            other => Err(format!("cannot assign to a {}", other.description())),
        }
    }

    fn eval(&self, expression: &'a Expr<'a>, scope: &Rc<Scope>) -> Result<Value, String> {
        self.spend(1)?;
        self.deeper()?;
        let value = self.one_expression(expression, scope)?;
        self.nested.set(self.nested.get() - 1);
        Ok(value)
    }

    fn one_expression(&self, expression: &'a Expr<'a>, scope: &Rc<Scope>) -> Result<Value, String> {
        match expression {
            Expr::Var(variable) => Ok(self.variable(variable.id, scope)),
            Expr::Const(constant) => {
                let span = constant.span();
                let written = self.source.get(span.start_offset as usize..span.end_offset as usize);
                literal(&constant.value, written.unwrap_or_default())
            }
            Expr::List(list) => self.list(list, scope),
            Expr::Map(map) => self.map(map, scope),
            Expr::UnaryOp(unary) => {
                let value = self.eval(&unary.expr, scope)?;
                match unary.op {
                    UnaryOpKind::Not => Ok(Value::Bool(!self.is_true(&value)?)),
                    UnaryOpKind::Neg => operators::negate(&value),
                }
            }
            Expr::BinOp(binary) => self.binary(binary, scope),
            Expr::Compare(chain) => self.compare_chain(chain, scope),
            Expr::IfExpr(choice) => self.choose(choice, scope),
            Expr::Filter(filter) => {
                let value = match &filter.expr {
                    Some(expression) => self.eval(expression, scope)?,
                    None => return Err(format!("the filter `{}` has no value", filter.name)),
                };
                let arguments = self.arguments(Some(value), &filter.args, scope)?;
                self.filter(filter.name, &arguments)
            }
            Expr::Test(test) => {
                let value = self.eval(&test.expr, scope)?;
                let arguments = self.arguments(Some(value), &test.args, scope)?;
                self.test(test.name, &arguments).map(Value::Bool)
            }
            Expr::GetAttr(attribute) => {
                let value = self.eval(&attribute.expr, scope)?;
                self.spend(length(&value) / 64)?;
                lookup::attribute(&value, attribute.name)
            }
            Expr::GetItem(item) => {
                let value = self.eval(&item.expr, scope)?;
                let key = self.eval(&item.subscript_expr, scope)?;
                self.spend(length(&value) / 64 + cost(&key))?;
                lookup::item(&value, &key)
            }
            Expr::Slice(slice) => self.slice(slice, scope),
            Expr::Call(call) => {
                let callee = self.eval(&call.expr, scope)?;
                let arguments = self.arguments(None, &call.args, scope)?;
                self.make(self.call(&callee, &arguments)?)
            }
        }
    }

    /// A list or tuple.
    fn list(
        &self,
        list: &'a ast::Spanned<ast::List<'a>>,
        scope: &Rc<Scope>,
    ) -> Result<Value, String> {
        let items = list.items.iter().map(|item| self.eval(item, scope));
        let items = items.collect::<Result<Vec<_>, _>>()?;
        // The parser reads a tuple as a list.
        let start = list.span().start_offset as usize;
        let is_list = self.source.get(start..).is_none_or(|text| text.starts_with('['));
        self.make(if is_list { Value::from(items) } else { Value::tuple(items) })
    }

    fn map(&self, map: &'a ast::Map<'a>, scope: &Rc<Scope>) -> Result<Value, String> {
        let mut entries = Entries::default();
        for (key, value) in map.keys.iter().zip(&map.values) {
            let key = self.eval(key, scope)?;
            key.hashable()?;
            entries.insert(key, self.eval(value, scope)?);
        }
        self.make(entries.into_map())
    }

    /// `a < b < c`.
    fn compare_chain(
        &self,
        chain: &'a ast::Compare<'a>,
        scope: &Rc<Scope>,
    ) -> Result<Value, String> {
        let mut left = self.eval(&chain.expr, scope)?;
        for step in &chain.ops {
            let right = self.eval(&step.expr, scope)?;
            if !self.compare(step.op, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    /// `a if condition else b`.
    fn choose(&self, choice: &'a ast::IfExpr<'a>, scope: &Rc<Scope>) -> Result<Value, String> {
        let condition = self.eval(&choice.test_expr, scope)?;
        match (self.is_true(&condition)?, &choice.false_expr) {
            (true, _) => self.eval(&choice.true_expr, scope),
            (false, Some(otherwise)) => self.eval(otherwise, scope),
            // This one is never an error.
            (false, None) if self.environment.undefined == Undefined::Error => Ok(Value::from("")),
            (false, None) => Ok(Value::undefined(
                "the inline if-expression evaluated to false and no else section was defined.",
            )),
        }
    }

    fn slice(&self, slice: &'a ast::Slice<'a>, scope: &Rc<Scope>) -> Result<Value, String> {
        let value = self.eval(&slice.expr, scope)?;
        let bound = |bound: &'a Option<Expr<'a>>| match bound {
            Some(bound) => self.eval(bound, scope),
            None => Ok(Value::None),
        };
        let bounds = [bound(&slice.start)?, bound(&slice.stop)?, bound(&slice.step)?];
        self.spend(value.len().unwrap_or(0) / 64)?;
        self.make(operators::slice(&value, bounds)?)
    }

    fn variable(&self, name: &str, scope: &Rc<Scope>) -> Value {
        let is_function = |name: &str| {
            ["range", "dict", "namespace"].contains(&name)
                || REFUSED.contains(&name)
                || self.environment.functions.iter().any(|(other, _)| *other == name)
        };
        match scope.get(name) {
            Some(value) => value,
            None if is_function(name) => Value::Function(Arc::from(name)),
            None => Value::undefined(format!("'{name}' is undefined")),
        }
    }

    fn binary(&self, binary: &'a ast::BinOp<'a>, scope: &Rc<Scope>) -> Result<Value, String> {
        let left = self.eval(&binary.left, scope)?;
        // The right side of these is read only where it counts.
        match binary.op {
            BinOpKind::ScAnd if !self.is_true(&left)? => return Ok(left),
            BinOpKind::ScOr if self.is_true(&left)? => return Ok(left),
            BinOpKind::ScAnd | BinOpKind::ScOr => return self.eval(&binary.right, scope),
            _ => {}
        }
        let right = self.eval(&binary.right, scope)?;
        self.spend((left.measure().size + right.measure().size) / 64)?;
        let compare = |op: CompareOpKind| self.compare(op, &left, &right).map(Value::Bool);
        let result = match binary.op {
            BinOpKind::Add => operators::add(&left, &right),
            BinOpKind::Sub => operators::subtract(&left, &right),
            BinOpKind::Mul => operators::multiply(&left, &right),
            BinOpKind::Div => operators::divide(&left, &right),
            BinOpKind::FloorDiv => operators::floor_divide(&left, &right),
            BinOpKind::Rem => {
                self.all_used(&right)?;
                // Each part is written out, even if little of it stays.
                self.spend(deep_cost(&right))?;
                operators::modulo(&left, &right)
            }
            BinOpKind::Pow => operators::power(&left, &right),
            BinOpKind::Concat => {
                self.used(&left)?;
                self.used(&right)?;
                operators::add(&Value::from(left.text()?), &Value::from(right.text()?))
            }
            BinOpKind::Eq => compare(CompareOpKind::Eq),
            BinOpKind::Ne => compare(CompareOpKind::Ne),
            BinOpKind::Lt => compare(CompareOpKind::Lt),
            BinOpKind::Lte => compare(CompareOpKind::Lte),
            BinOpKind::Gt => compare(CompareOpKind::Gt),
            BinOpKind::Gte => compare(CompareOpKind::Gte),
            BinOpKind::In => compare(CompareOpKind::In),
            BinOpKind::ScAnd | BinOpKind::ScOr => Ok(right),
        };
        self.make(result?)
    }

    fn compare(&self, op: CompareOpKind, left: &Value, right: &Value) -> Result<bool, String> {
        self.used(left)?;
        self.used(right)?;
        let is = |holds: fn(std::cmp::Ordering) -> bool| {
            Ok::<_, String>(left.order(right)?.is_some_and(holds))
        };
        self.spend((left.measure().size + right.measure().size) / 64)?;
        // Of two maps or sets each key is looked for.
        if let (Value::Map(_) | Value::View(..), Value::Map(_) | Value::View(..)) = (left, right) {
            self.spend(length(left).saturating_mul(length(right)) / 64)?;
        }
        match op {
            CompareOpKind::Eq => Ok(left.equals(right)),
            CompareOpKind::Ne => Ok(!left.equals(right)),
            CompareOpKind::Lt => is(std::cmp::Ordering::is_lt),
            CompareOpKind::Lte => is(std::cmp::Ordering::is_le),
            CompareOpKind::Gt => is(std::cmp::Ordering::is_gt),
            CompareOpKind::Gte => is(std::cmp::Ordering::is_ge),
            CompareOpKind::In => operators::contains(right, left),
            CompareOpKind::NotIn => operators::contains(right, left).map(|holds| !holds),
        }
    }

    fn arguments(
        &self,
        value: Option<Value>,
        written: &'a [CallArg<'a>],
        scope: &Rc<Scope>,
    ) -> Result<Arguments, String> {
        let mut arguments =
            Arguments { positional: value.into_iter().collect(), keywords: Vec::new() };
        for argument in written {
            match argument {
                CallArg::Pos(value) => arguments.positional.push(self.eval(value, scope)?),
                CallArg::Kwarg(name, value) => {
                    arguments.keywords.push(((*name).to_owned(), self.eval(value, scope)?));
                }
                CallArg::PosSplat(values) => {
                    let values = self.eval(values, scope)?.iterate()?;
                    self.spend(values.len())?;
                    arguments.positional.extend(values);
                }
                CallArg::KwargSplat(values) => {
                    let Value::Map(entries) = self.eval(values, scope)? else {
                        return Err("argument after ** must be a mapping".to_owned());
                    };
                    for (key, value) in entries.iter() {
                        let key = key.as_str().ok_or("keywords must be strings")?;
                        arguments.keywords.push((key.to_owned(), value.clone()));
                    }
                }
            }
        }
        Ok(arguments)
    }

    /// A value through a filter, or a chain of them, that was written without a value.
    fn filtered(
        &self,
        filter: &'a Expr<'a>,
        value: Value,
        scope: &Rc<Scope>,
    ) -> Result<Value, String> {
        let Expr::Filter(filter) = filter else {
            return Err(format!("a filter is expected, not a {}", filter.description()));
        };
        let value = match &filter.expr {
            Some(inner) => self.filtered(inner, value, scope)?,
            None => value,
        };
        let arguments = self.arguments(Some(value), &filter.args, scope)?;
        self.filter(filter.name, &arguments)
    }

    fn filter(&self, name: &str, arguments: &Arguments) -> Result<Value, String> {
        if !["default", "d"].contains(&name) {
            self.used(arguments.value())?;
        }
        if ["join", "format"].contains(&name) {
            arguments.positional.iter().try_for_each(|argument| self.all_used(argument))?;
            if let Value::Generator(generator) = arguments.value() {
                let items = generator.items.lock().unwrap_or_else(PoisonError::into_inner);
                items.iter().try_for_each(|item| self.used(item))?;
            }
        }
        self.spend(match name {
            // It looks each character up.
            "wordcount" => length(arguments.value()),
            _ => cost(arguments.value()),
        })?;
        self.spend(arguments.positional.iter().skip(1).map(deep_cost).sum())?;
        let added = self.environment.filters.iter().find(|(other, _)| *other == name);
        if let Some((_, function)) = added {
            return self.make(function(arguments)?);
        }
        if let Value::Markup(_) = arguments.value()
            && !["string", "safe", "length", "count", "default", "d", "replace", "tojson"]
                .contains(&name)
        {
            return Err(format!("the filter `{name}` of a safe text is not supported by canonc"));
        }
        match filters::filter(self, name, arguments)? {
            Some(value) => self.make(value),
            None => Err(format!("No filter named '{name}'.")),
        }
    }

    fn test(&self, name: &str, arguments: &Arguments) -> Result<bool, String> {
        const OF_NOTHING: &[&str] = &[
            "defined",
            "undefined",
            "none",
            "boolean",
            "true",
            "false",
            "integer",
            "float",
            "number",
            "string",
            "mapping",
            "sameas",
            "sequence",
            "callable",
        ];
        if !OF_NOTHING.contains(&name) {
            self.used(arguments.value())?;
            self.spend(arguments.positional.iter().map(deep_cost).sum())?;
        }
        let is_lenient = self.environment.undefined == Undefined::Empty;
        match tests::test(name, arguments, is_lenient)? {
            Some(holds) => Ok(holds),
            None => Err(format!("No test named '{name}'.")),
        }
    }

    fn declare(&self, declaration: &'a ast::Macro<'a>, scope: &Rc<Scope>) -> Result<Value, String> {
        // It keeps the scope around it.
        self.allocate(1 << 10)?;
        let mut macros = self.macros.borrow_mut();
        macros.push(Rc::new(Macro { declaration, scope: Rc::clone(scope) }));
        Ok(Value::Macro(macros.len() - 1))
    }

    fn call(&self, callee: &Value, arguments: &Arguments) -> Result<Value, String> {
        match callee {
            Value::Function(name) => self.function(name, arguments),
            Value::Method(method) => match (&method.0, method.1.as_str()) {
                (Value::Loop(state), name) => {
                    self.spend(arguments.positional.iter().map(deep_cost).sum())?;
                    loop_method(state, name, arguments)
                }
                (value, name) => {
                    arguments.positional.iter().try_for_each(|argument| self.all_used(argument))?;
                    let given: usize = arguments.positional.iter().map(deep_cost).sum();
                    self.spend(2 * cost(value) + given)?;
                    methods::call(value, name, arguments)
                }
            },
            Value::Macro(number) => self.call_macro(*number, arguments),
            Value::Undefined(message) => Err(message.to_string()),
            Value::Loop(_) => Err("a recursive loop is not supported by canonc".to_owned()),
            other => Err(format!("'{}' object is not callable", other.type_name())),
        }
    }

    fn function(&self, name: &str, arguments: &Arguments) -> Result<Value, String> {
        let named = arguments.keywords.iter().map(|(_, value)| value);
        self.spend(arguments.positional.iter().chain(named).map(cost).sum())?;
        let added = self.environment.functions.iter().find(|(other, _)| *other == name);
        if let Some((_, function)) = added {
            return function(arguments);
        }
        match name {
            "range" => range(arguments),
            "dict" | "namespace" => {
                let mut entries = Entries::default();
                for pair in arguments.positional() {
                    match pair {
                        Value::Map(map) => map
                            .iter()
                            .for_each(|(key, value)| entries.insert(key.clone(), value.clone())),
                        pairs => {
                            for pair in pairs.iterate()? {
                                let [key, value] = &pair.iterate()?[..] else {
                                    return Err(format!(
                                        "{name}() needs pairs of a key and a value"
                                    ));
                                };
                                // A key that is no text is compared with all before it.
                                if key.as_str().is_none() {
                                    self.spend(entries.len() / 16)?;
                                }
                                entries.insert(key.clone(), value.clone());
                            }
                        }
                    }
                }
                let is_mutable = |value: &Value| value.measure().is_mutable;
                if arguments.positional().iter().any(is_mutable)
                    || arguments.keywords().iter().any(|(_, value)| is_mutable(value))
                {
                    return Err(
                        "a namespace or a loop inside a namespace is not supported by canonc"
                            .to_owned(),
                    );
                }
                for (key, value) in arguments.keywords() {
                    if name == "namespace" && key.starts_with('_') {
                        return Err(format!(
                            "a namespace has no attribute that begins with `_`: '{key}'"
                        ));
                    }
                    entries.insert(Value::from(key.as_str()), value.clone());
                }
                match name {
                    "dict" => Ok(entries.into_map()),
                    _ => Ok(Value::Namespace(Arc::new(Mutex::new(entries.into_inner())))),
                }
            }
            name => Err(format!("the function `{name}` is not supported by canonc")),
        }
    }

    fn call_macro(&self, number: usize, arguments: &Arguments) -> Result<Value, String> {
        let Some(called) = self.macros.borrow().get(number).cloned() else {
            return Err("a macro that does not exist is called".to_owned());
        };
        let Macro { declaration, scope } = &*called;
        if self.depth.get() >= DEPTH {
            return Err(format!("macros call each other more than {DEPTH} deep"));
        }
        self.depth.set(self.depth.get() + 1);
        let inside = Scope::inside(scope);
        let mut keywords = arguments.keywords.clone();
        let without_default = declaration.args.len() - declaration.defaults.len();
        for (at, parameter) in declaration.args.iter().enumerate() {
            let Expr::Var(parameter) = parameter else { continue };
            let given = keywords.iter().position(|(name, _)| name == parameter.id);
            let value = match (arguments.at(at), given) {
                (Some(_), Some(_)) => {
                    return Err(format!(
                        "macro '{}' got multiple values for argument '{}'",
                        declaration.name, parameter.id
                    ));
                }
                (Some(value), None) => value.clone(),
                (None, Some(given)) => keywords.remove(given).1,
                (None, None) => match at
                    .checked_sub(without_default)
                    .and_then(|at| declaration.defaults.get(at))
                {
                    Some(default) => self.eval(default, &inside)?,
                    None => {
                        Value::undefined(format!("parameter '{}' was not provided", parameter.id))
                    }
                },
            };
            inside.set(parameter.id, value);
        }
        let caller = keywords.iter().position(|(name, _)| name == "caller");
        if let Some(at) = caller {
            inside.set("caller", keywords.remove(at).1);
        }
        // Jinja2 accepts more arguments where the macro's text names `varargs` or `kwargs`.
        let more = arguments.positional.get(declaration.args.len()..).unwrap_or_default();
        inside.set("varargs", Value::tuple(more.to_vec()));
        inside.set("kwargs", keywords.iter().cloned().collect());
        if !more.is_empty() || !keywords.is_empty() {
            return Err(format!(
                "macro '{}' takes no more arguments; canonc supports neither varargs nor kwargs",
                declaration.name
            ));
        }
        let text = self.captured(&declaration.body, &inside)?;
        self.depth.set(self.depth.get() - 1);
        Ok(Value::from(text))
    }
}

/// Returns to a generator what a loop did not read.
fn give_back(iterated: &Value, unread: &[Value]) {
    if let Value::Generator(generator) = iterated {
        let mut items = generator.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.extend(unread.iter().cloned());
    }
}

/// A constant, as Jinja2 reads what is written.
fn literal(value: &minijinja::Value, written: &str) -> Result<Value, String> {
    static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let digits = r"\d+(_\d+)*";
        let number = format!(
            r"^(0[bB](_?[01])+|0[oO](_?[0-7])+|0[xX](_?[0-9a-fA-F])+|[1-9](_?\d)*|0(_?0)*|{digits}(\.{digits})?[eE][+-]?{digits}|{digits}\.{digits})$"
        );
        Regex::new(&number).ok()
    });
    let unknown = || format!("`{written}` in a template is not supported by canonc");
    match value.kind() {
        ValueKind::None => Ok(Value::None),
        ValueKind::Bool => Ok(Value::Bool(value.is_true())),
        ValueKind::String => {
            let text = value.as_str().ok_or_else(unknown)?;
            match written.contains('\\') {
                true => unescaped(written).map(Value::from).ok_or_else(unknown),
                false => Ok(Value::from(text)),
            }
        }
        ValueKind::Number => {
            if !NUMBER.as_ref().is_some_and(|number| number.is_match(written.trim())) {
                return Err(unknown());
            }
            match i128::try_from(value.clone()) {
                Ok(number) if value.is_integer() => Ok(Value::Int(number)),
                _ => {
                    let number = f64::try_from(value.clone()).map_err(|_| unknown())?;
                    if number.is_finite() { Ok(Value::Float(number)) } else { Err(unknown()) }
                }
            }
        }
        _ => Err(unknown()),
    }
}

/// The text of one string literal with Python's escapes; `None` for names of characters and halves of surrogates.
fn unescaped(written: &str) -> Option<String> {
    let quote = written.chars().next().filter(|quote| ['\'', '"'].contains(quote))?;
    let mut characters = written.get(1..)?.strip_suffix(quote)?.chars().peekable();
    let mut text = String::new();
    while let Some(c) = characters.next() {
        if c == quote {
            return None;
        }
        if c != '\\' {
            text.push(c);
            continue;
        }
        let escaped = characters.next()?;
        let mut code = |digits: usize| {
            let mut code = 0;
            for _ in 0..digits {
                code = code * 16 + characters.next()?.to_digit(16)?;
            }
            char::from_u32(code)
        };
        match escaped {
            '\n' => {}
            'a' => text.push('\u{7}'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            'v' => text.push('\u{b}'),
            '\\' | '\'' | '"' => text.push(escaped),
            'x' => text.push(code(2)?),
            'u' => text.push(code(4)?),
            'U' => text.push(code(8)?),
            'N' => return None,
            '0'..='7' => {
                let mut number = escaped.to_digit(8)?;
                for _ in 0..2 {
                    let Some(digit) = characters.peek().and_then(|digit| digit.to_digit(8)) else {
                        break;
                    };
                    number = number * 8 + digit;
                    characters.next();
                }
                text.push(char::from_u32(number)?);
            }
            other => text.extend(['\\', other]),
        }
    }
    Some(text)
}

fn range(arguments: &Arguments) -> Result<Value, String> {
    let numbers = arguments.positional().iter().map(|value| {
        value.as_int().ok_or_else(|| {
            format!("'{}' object cannot be interpreted as an integer", value.type_name())
        })
    });
    let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
    let (start, stop, step) = match numbers[..] {
        [stop] => (0, stop, 1),
        [start, stop] => (start, stop, 1),
        [start, stop, step] => (start, stop, step),
        _ => return Err(format!("range expected 1 to 3 arguments, got {}", numbers.len())),
    };
    if step == 0 {
        return Err("range() arg 3 must not be zero".to_owned());
    }
    let distance = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
    let length = distance.max(0).saturating_add(step.abs() - 1) / step.abs();
    if length > RANGE {
        return Err(format!(
            "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({RANGE})."
        ));
    }
    Ok(Value::View(
        crate::value::RANGE,
        Value::items((0..length).map(|at| Value::Int(start + at * step)).collect()),
    ))
}

fn loop_method(state: &Loop, name: &str, arguments: &Arguments) -> Result<Value, String> {
    match name {
        "cycle" => {
            let all = arguments.positional();
            if all.is_empty() {
                return Err("no items for cycling given".to_owned());
            }
            Ok(all.get(state.index % all.len()).cloned().unwrap_or(Value::None))
        }
        _ => {
            let value = Value::tuple(arguments.positional().to_vec());
            let mut last = state.last.lock().unwrap_or_else(PoisonError::into_inner);
            let is_same = last.as_ref().is_some_and(|last| last.equals(&value));
            *last = Some(value);
            Ok(Value::Bool(!is_same))
        }
    }
}
