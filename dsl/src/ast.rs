//! The syntax tree of a `.canon` file, as written: names are unresolved, every node is spanned.
//!
//! In: nothing; this is data. Must stay true: two trees that differ only in spans, comments and
//! layout print the same text, and a printed tree parses back to itself.

use crate::{Decimal, Span};

/// A name or keyword-like word with its place.
#[derive(Clone, Debug)]
pub struct Name {
    pub text: String,
    pub span: Span,
}

/// One file: imports first, then definitions in the order written.
#[derive(Clone, Debug, Default)]
pub struct Ast {
    pub imports: Vec<Import>,
    pub items: Vec<Item>,
    /// `//` comments (not `///` docs) in order of appearance; the printer puts them back.
    pub comments: Vec<Comment>,
}

#[derive(Clone, Debug)]
pub struct Comment {
    /// The text after `//`, right-trimmed.
    pub text: String,
    pub span: Span,
    /// Whether code comes before it on its line.
    pub trailing: bool,
    /// Whether the next token is `}`: the comment ends its block.
    pub before_close: bool,
}

/// `import a, b as c from "file.canon"`
#[derive(Clone, Debug)]
pub struct Import {
    pub names: Vec<ImportName>,
    pub path: String,
    pub path_span: Span,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct ImportName {
    pub name: Name,
    pub alias: Option<Name>,
}

#[derive(Clone, Debug)]
pub enum Item {
    Def(Def),
    Alias(Alias),
    Init(InitTable),
    Arch(Arch),
}

impl Item {
    pub fn name(&self) -> &Name {
        match self {
            Item::Def(def) => &def.name,
            Item::Alias(alias) => &alias.name,
            Item::Init(table) => &table.name,
            Item::Arch(arch) => &arch.name,
        }
    }

    pub fn span(&self) -> Span {
        match self {
            Item::Def(def) => def.span,
            Item::Alias(alias) => alias.span,
            Item::Init(table) => table.span,
            Item::Arch(arch) => arch.span,
        }
    }

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
pub enum Kind {
    Block,
    Mixer,
    Mlp,
    Head,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Block, Kind::Mixer, Kind::Mlp, Kind::Head];

    pub fn word(self) -> &'static str {
        match self {
            Kind::Block => "block",
            Kind::Mixer => "mixer",
            Kind::Mlp => "mlp",
            Kind::Head => "head",
        }
    }
}

/// `mixer attention(x; heads, kv_heads = heads) { … }`
#[derive(Clone, Debug)]
pub struct Def {
    /// `///` lines without the slashes and the one space after them.
    pub docs: Vec<String>,
    pub kind: Kind,
    pub name: Name,
    pub tensors: Vec<Name>,
    pub config: Vec<ConfigParam>,
    pub body: Body,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct ConfigParam {
    pub name: Name,
    pub default: Option<Expr>,
}

/// Statements, then the result: one expression, or several for several tensors.
#[derive(Clone, Debug)]
pub struct Body {
    pub statements: Vec<Statement>,
    pub result: Vec<Expr>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum Statement {
    /// `a, b = expr`
    Let { names: Vec<Name>, value: Expr, span: Span },
    /// `param A_log [heads] init log_uniform(1, 16)`
    Param { name: Name, dims: Vec<Expr>, init: Option<Expr>, span: Span },
    /// `share proj = linear { bias true }`: one instance that can be called any number of times
    Share { name: Name, callee: Name, entries: Option<Vec<Entry>>, span: Span },
    /// `if c { … } else { … }`; an `else if` is an `otherwise` holding one `If`
    If { condition: Expr, then: Vec<Statement>, otherwise: Vec<Statement>, span: Span },
}

impl Statement {
    pub fn span(&self) -> Span {
        match self {
            Statement::Let { span, .. }
            | Statement::Param { span, .. }
            | Statement::Share { span, .. }
            | Statement::If { span, .. } => *span,
        }
    }
}

/// `block gdn = decoder { mixer gated_deltanet { heads 4 } }`: a definition with configuration
#[derive(Clone, Debug)]
pub struct Alias {
    pub docs: Vec<String>,
    pub kind: Kind,
    pub name: Name,
    pub value: Expr,
    pub span: Span,
}

/// `init lingua { linear trunc_normal(rsqrt(fan_in), 3)  norm ones }`
#[derive(Clone, Debug)]
pub struct InitTable {
    pub docs: Vec<String>,
    pub name: Name,
    pub entries: Vec<Entry>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct Arch {
    pub docs: Vec<String>,
    pub name: Name,
    pub body: ArchBody,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum ArchBody {
    /// `arch a { entries }`
    Fields(Vec<Entry>),
    /// `arch b = a with { edits }`
    With { base: Name, edits: Vec<Entry> },
}

/// One line of an arch, a `with`, a definition's configuration or an init table.
#[derive(Clone, Debug)]
pub enum Entry {
    /// `PATH value`
    Set { path: Path, value: Expr, span: Span },
    /// `PATH = value`: replaces the whole subtree
    Replace { path: Path, value: Expr, span: Span },
    /// `PATH { entries }`: the entries below that path
    Nested { path: Path, entries: Vec<Entry>, span: Span },
    /// `layers LAYERS`
    Layers { value: LayerList, span: Span },
    /// `fill A, layers[0].B with canon { kernel 4 }`
    Fill { slots: Vec<Path>, with: Expr, span: Span },
    /// `canon A, B { kernel 4 }`: short for `fill A, B with canon { kernel 4 }`
    Canon { slots: Vec<Path>, entries: Option<Vec<Entry>>, span: Span },
    /// `empty A, B`
    Empty { slots: Vec<Path>, span: Span },
}

impl Entry {
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
    pub what: LayerWhat,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum LayerWhat {
    /// A layer definition; `share` makes all repetitions one instance.
    One {
        share: bool,
        layer: Expr,
    },
    List(Vec<LayerList>),
}

/// `layers[every 4 from 3].mixer.rope.dims`
#[derive(Clone, Debug)]
pub struct Path {
    pub segments: Vec<Segment>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum Segment {
    Name(Name),
    /// `layers[…]`; only as the first segment
    Layers {
        select: Select,
        span: Span,
    },
}

#[derive(Clone, Debug)]
pub enum Select {
    /// `layers[*]`
    All,
    /// `layers[3]`
    Index(u64),
    /// `layers[0..6]`, end excluded
    Range(u64, u64),
    /// `layers[every 4 from 3]`; `from` defaults to 0
    Every { step: u64, from: u64 },
    /// `layers[mixer is attention]`
    Is { path: Vec<Name>, def: Name },
}

#[derive(Clone, Debug)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum ExprKind {
    Int(i64),
    Decimal(Decimal),
    Bool(bool),
    Name(String),
    /// `attention { heads 32 }`: a definition with configuration, not yet called
    Applied {
        def: Name,
        entries: Vec<Entry>,
    },
    /// `linear wq (x, n, bias = true)`
    Call {
        callee: Name,
        instance: Option<Name>,
        args: Vec<Arg>,
    },
    /// `slot B(q, k, v)`
    Slot {
        name: Name,
        args: Vec<Expr>,
    },
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
}

#[derive(Clone, Debug)]
pub struct Arg {
    /// `name = value`
    pub name: Option<Name>,
    pub value: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    Neg,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    Or,
    And,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Add,
    Sub,
    Mul,
    Div,
}

impl UnaryOp {
    pub fn sign(self) -> &'static str {
        match self {
            UnaryOp::Neg => "-",
            UnaryOp::Not => "not",
        }
    }
}

impl BinaryOp {
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
