//! The syntax tree of a `.canon` file, as written: names are unresolved, every node is spanned.
//!
//! Two trees that differ only in spans, comments and layout print the same text, and a printed tree parses back to itself.

use crate::{Decimal, Span};

/// A name or keyword-like word with its place.
#[derive(Clone, Debug)]
pub struct Name {
    /// The word as written.
    pub text: String,
    /// Place of the word.
    pub span: Span,
}

/// One file: imports first, then definitions in the order written.
#[derive(Clone, Debug, Default)]
pub struct Ast {
    /// `import` lines, all before the first definition.
    pub imports: Vec<Import>,
    /// Definitions, in the order written.
    pub items: Vec<Item>,
    /// `//` comments (not `///` docs) in order of appearance; the printer puts them back.
    pub comments: Vec<Comment>,
}

/// A `//` comment.
#[derive(Clone, Debug)]
pub struct Comment {
    /// The text after `//`, right-trimmed.
    pub text: String,
    /// Place of the comment, from its `//`.
    pub span: Span,
    /// Whether code comes before it on its line.
    pub trailing: bool,
    /// Whether the next token is `}`: the comment ends its block.
    pub before_close: bool,
}

/// `import a, b as c from "file.canon"`
#[derive(Clone, Debug)]
pub struct Import {
    /// The imported definitions, in the order written.
    pub names: Vec<ImportName>,
    /// The path between the quotes, without escapes or interpretation.
    pub path: String,
    /// Place of the path with its quotes.
    pub path_span: Span,
    /// Place of the whole line.
    pub span: Span,
}

/// One definition of an import: `gla as gated`.
#[derive(Clone, Debug)]
pub struct ImportName {
    /// Its name in the imported file.
    pub name: Name,
    /// Its name in this file, after `as`.
    pub alias: Option<Name>,
}

/// A definition at the top level of a file.
#[derive(Clone, Debug)]
pub enum Item {
    /// A `block`, `mixer`, `mlp` or `head` with a body.
    Def(Def),
    /// Another definition with configuration, under a new name.
    Alias(Alias),
    /// A table of initial values.
    Init(InitTable),
    /// A complete model.
    Arch(Arch),
}

impl Item {
    /// The defined name.
    pub fn name(&self) -> &Name {
        match self {
            Item::Def(def) => &def.name,
            Item::Alias(alias) => &alias.name,
            Item::Init(table) => &table.name,
            Item::Arch(arch) => &arch.name,
        }
    }

    /// Place of the whole definition.
    pub fn span(&self) -> Span {
        match self {
            Item::Def(def) => def.span,
            Item::Alias(alias) => alias.span,
            Item::Init(table) => table.span,
            Item::Arch(arch) => arch.span,
        }
    }

    /// The `///` lines above it, without the slashes and the one space after them.
    pub fn docs(&self) -> &[String] {
        match self {
            Item::Def(def) => &def.docs,
            Item::Alias(alias) => &alias.docs,
            Item::Init(table) => &table.docs,
            Item::Arch(arch) => &arch.docs,
        }
    }
}

/// The keyword of a definition. All four behave alike; `show` and the diagnostics repeat the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DefKind {
    /// `block`: one layer, or a part of one.
    Block,
    /// `mixer`: combines the tokens of a sequence.
    Mixer,
    /// `mlp`: works on each token by itself.
    Mlp,
    /// `head`: from the last layer to logits.
    Head,
}

impl DefKind {
    /// All keywords, in the order that messages list them.
    pub const ALL: [DefKind; 4] = [DefKind::Block, DefKind::Mixer, DefKind::Mlp, DefKind::Head];

    /// The keyword itself.
    pub fn word(self) -> &'static str {
        match self {
            DefKind::Block => "block",
            DefKind::Mixer => "mixer",
            DefKind::Mlp => "mlp",
            DefKind::Head => "head",
        }
    }
}

/// `mixer attention(x; heads, kv_heads = heads) { … }`
#[derive(Clone, Debug)]
pub struct Def {
    /// `///` lines without the slashes and the one space after them.
    pub docs: Vec<String>,
    /// Its keyword.
    pub kind: DefKind,
    /// The name that calls use.
    pub name: Name,
    /// Tensor parameters, the ones in parentheses.
    pub tensors: Vec<Name>,
    /// Configuration parameters, the ones in braces.
    pub config: Vec<ConfigParam>,
    /// What it computes.
    pub body: Body,
    /// Place of the whole definition, without its docs.
    pub span: Span,
}

/// A configuration parameter of a definition.
#[derive(Clone, Debug)]
pub struct ConfigParam {
    /// The parameter's name.
    pub name: Name,
    /// Value where a use does not set it; required without one.
    pub default: Option<Expr>,
}

/// Statements, then the result: one expression, or several for several tensors.
#[derive(Clone, Debug)]
pub struct Body {
    /// Bindings and declarations, in the order written.
    pub statements: Vec<Statement>,
    /// The results, one for each tensor that the body returns.
    pub result: Vec<Expr>,
    /// Place of the body.
    pub span: Span,
}

/// A statement of a body.
#[derive(Clone, Debug)]
pub enum Statement {
    /// `a, b = expr`
    Let {
        /// The bound names, one for each tensor of the value.
        names: Vec<Name>,
        /// The expression that computes them.
        value: Expr,
        /// Place of the whole statement.
        span: Span,
    },
    /// `param A_log [heads] init log_uniform(1, 16)`
    Param {
        /// The parameter's name, the last part of its path.
        name: Name,
        /// Its sizes, outermost first.
        dims: Vec<Expr>,
        /// How it is initialised; the arch's table decides without it.
        init: Option<Expr>,
        /// Place of the whole statement.
        span: Span,
    },
    /// `share proj = linear { bias true }`: one instance that can be called any number of times
    Share {
        /// Name of the instance.
        name: Name,
        /// The shared definition or primitive.
        callee: Name,
        /// Its configuration; None without braces.
        entries: Option<Vec<Entry>>,
        /// Place of the whole statement.
        span: Span,
    },
    /// `carry v0 = v else { … }`: a tensor that passes from layer to layer
    Carry {
        /// Its name in all layers.
        name: Name,
        /// Its value where no layer before has one.
        value: Expr,
        /// Statements for where one has; empty without `else`.
        otherwise: Vec<Statement>,
        /// Place of the whole statement.
        span: Span,
    },
    /// `if c { … } else { … }`; an `else if` is an `otherwise` holding one `If`
    If {
        /// A constant condition: no tensor occurs in it.
        condition: Expr,
        /// Statements for a true condition.
        then: Vec<Statement>,
        /// Statements for a false one; empty without `else`.
        otherwise: Vec<Statement>,
        /// Place of the whole statement.
        span: Span,
    },
}

impl Statement {
    /// Place of the whole statement.
    pub fn span(&self) -> Span {
        match self {
            Statement::Let { span, .. }
            | Statement::Param { span, .. }
            | Statement::Share { span, .. }
            | Statement::Carry { span, .. }
            | Statement::If { span, .. } => *span,
        }
    }
}

/// `block gdn = decoder { mixer gated_deltanet { heads 4 } }`: a definition with configuration
#[derive(Clone, Debug)]
pub struct Alias {
    /// `///` lines without the slashes and the one space after them.
    pub docs: Vec<String>,
    /// Its keyword.
    pub kind: DefKind,
    /// The new name.
    pub name: Name,
    /// The definition with its configuration.
    pub value: Expr,
    /// Place of the whole definition, without its docs.
    pub span: Span,
}

/// `init lingua { linear trunc_normal(rsqrt(fan_in), 3)  norm ones }`
#[derive(Clone, Debug)]
pub struct InitTable {
    /// `///` lines without the slashes and the one space after them.
    pub docs: Vec<String>,
    /// The name that an arch's `init` gives.
    pub name: Name,
    /// A rule for each kind of parameter.
    pub entries: Vec<Entry>,
    /// Place of the whole table, without its docs.
    pub span: Span,
}

/// A model: its fields, or the edits of another one.
#[derive(Clone, Debug)]
pub struct Arch {
    /// `///` lines without the slashes and the one space after them.
    pub docs: Vec<String>,
    /// The name that recipes and commands use.
    pub name: Name,
    /// Fields or edits.
    pub body: ArchBody,
    /// Place of the whole definition, without its docs.
    pub span: Span,
}

/// The two ways to write an arch.
#[derive(Clone, Debug)]
pub enum ArchBody {
    /// `arch a { entries }`
    Fields(Vec<Entry>),
    /// `arch b = a with { edits }`
    With {
        /// The arch to start from.
        base: Name,
        /// Changes to it, in order.
        edits: Vec<Entry>,
    },
}

/// One line of an arch, a `with`, a definition's configuration or an init table.
#[derive(Clone, Debug)]
pub enum Entry {
    /// `PATH value`
    Set {
        /// The field.
        path: Path,
        /// Its new value.
        value: Expr,
        /// Place of the whole entry.
        span: Span,
    },
    /// `PATH = value`: replaces the whole subtree
    Replace {
        /// The root of the subtree.
        path: Path,
        /// The new subtree.
        value: Expr,
        /// Place of the whole entry.
        span: Span,
    },
    /// `PATH { entries }`: the entries below that path
    Nested {
        /// What the entries' paths continue.
        path: Path,
        /// Entries, each relative to the path.
        entries: Vec<Entry>,
        /// Place of the whole entry.
        span: Span,
    },
    /// `layers LAYERS`
    Layers {
        /// The layers, in order.
        value: LayerList,
        /// Place of the whole entry.
        span: Span,
    },
    /// `fill A, layers[0].B with canon { kernel 4 }`
    Fill {
        /// The slots to fill.
        slots: Vec<Path>,
        /// The definition that goes into each.
        with: Expr,
        /// Place of the whole entry.
        span: Span,
    },
    /// `canon A, B { kernel 4 }`: short for `fill A, B with canon { kernel 4 }`
    Canon {
        /// The slots to fill.
        slots: Vec<Path>,
        /// Configuration of `canon`; None without braces.
        entries: Option<Vec<Entry>>,
        /// Place of the whole entry.
        span: Span,
    },
    /// `empty A, B`
    Empty {
        /// The slots to empty.
        slots: Vec<Path>,
        /// Place of the whole entry.
        span: Span,
    },
}

impl Entry {
    /// Place of the whole entry.
    pub fn span(&self) -> Span {
        match self {
            Entry::Set { span, .. }
            | Entry::Replace { span, .. }
            | Entry::Nested { span, .. }
            | Entry::Layers { span, .. }
            | Entry::Fill { span, .. }
            | Entry::Canon { span, .. }
            | Entry::Empty { span, .. } => *span,
        }
    }
}

/// `24 of decoder {…}` or `[a, 2 of b, share c]` or `6 of [a, b]`
#[derive(Clone, Debug)]
pub struct LayerList {
    /// The count expression before `of`, if written.
    pub count: Option<Expr>,
    /// What is repeated.
    pub what: LayerWhat,
    /// Place of the list, count included.
    pub span: Span,
}

/// One layer definition, or lists one after another.
#[derive(Clone, Debug)]
pub enum LayerWhat {
    /// A layer definition; `share` makes all repetitions one instance.
    One {
        /// Whether `share` is written.
        share: bool,
        /// The layer's definition with its configuration.
        layer: Expr,
    },
    /// `[a, b, 3 of c]`: several lists, concatenated.
    List(Vec<LayerList>),
}

/// `layers[every 4 from 3].mixer.rope.dims`
#[derive(Clone, Debug)]
pub struct Path {
    /// The parts between dots.
    pub segments: Vec<Segment>,
    /// Place of the whole path.
    pub span: Span,
}

/// A part of a path.
#[derive(Clone, Debug)]
pub enum Segment {
    /// A field, or a key of an init table.
    Name(Name),
    /// `layers[…]`; only as the first segment
    Layers {
        /// Which layers.
        select: Select,
        /// Place of `layers[…]`.
        span: Span,
    },
}

/// The layers that an edit applies to. Layers are numbered from 0.
#[derive(Clone, Debug)]
pub enum Select {
    /// `layers[*]`
    All,
    /// `layers[3]`
    Index(u64),
    /// `layers[0..6]`, end excluded
    Range(u64, u64),
    /// `layers[every 4 from 3]`; `from` defaults to 0
    Every {
        /// Distance between selected layers.
        step: u64,
        /// The first selected layer.
        from: u64,
    },
    /// `layers[mixer is attention]`
    Is {
        /// A field of the layer.
        path: Vec<Name>,
        /// The definition that this field must have.
        def: Name,
    },
}

/// An expression with its place.
#[derive(Clone, Debug)]
pub struct Expr {
    /// The expression itself.
    pub kind: ExprKind,
    /// Place of the whole expression.
    pub span: Span,
}

/// The kinds of expressions.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// An integer literal, not negative: the sign is a [`UnaryOp`].
    Int(i64),
    /// A literal with a decimal point or an exponent.
    Decimal(Decimal),
    /// `true` or `false`.
    Bool(bool),
    /// A name in scope or a definition.
    Name(String),
    /// `attention { heads 32 }`: a definition with configuration, not yet called
    Applied {
        /// The definition.
        def: Name,
        /// The configuration in braces.
        entries: Vec<Entry>,
    },
    /// `linear wq (x, n, bias = true)`
    Call {
        /// The definition or primitive that is called.
        callee: Name,
        /// Name of the instance (`wq`), which its parameters' paths contain.
        instance: Option<Name>,
        /// Tensors and configuration, in the order written.
        args: Vec<Arg>,
    },
    /// `slot B(q, k, v)`
    Slot {
        /// The slot's name, which `fill` and `empty` use.
        name: Name,
        /// The tensors that pass through it.
        args: Vec<Expr>,
    },
    /// An operator before its operand.
    Unary(UnaryOp, Box<Expr>),
    /// An operator between its operands.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
}

/// One argument of a call.
#[derive(Clone, Debug)]
pub struct Arg {
    /// `name = value`
    pub name: Option<Name>,
    /// The tensor or configuration value.
    pub value: Expr,
}

/// Operators with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    /// `-`
    Neg,
    /// `not`
    Not,
}

/// Operators with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// `or`
    Or,
    /// `and`
    And,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
}

impl UnaryOp {
    /// The operator as the language writes it.
    pub fn sign(self) -> &'static str {
        match self {
            UnaryOp::Neg => "-",
            UnaryOp::Not => "not",
        }
    }
}

impl BinaryOp {
    /// The operator as the language writes it.
    pub fn sign(self) -> &'static str {
        match self {
            BinaryOp::Or => "or",
            BinaryOp::And => "and",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
        }
    }
}
