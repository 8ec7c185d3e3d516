//! An architecture as a finite tree of fields, which `with` edits and `elaborate` reads. Equal layers written once
//! share one `Rc` until an edit makes them differ, so ten thousand equal layers cost as much as one.

mod value;

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::{ConfigParam, Def, Expr, FileId, Span};

use crate::op::{self, ConfigKind, Primitive};

pub use value::Value;

/// A definition with its file, which is the scope of its body.
#[derive(Debug)]
pub struct DefItem {
    /// The file that defines it.
    pub file: FileId,
    /// The definition's syntax tree.
    pub def: Def,
}

/// The callee of a call.
#[derive(Clone, Debug)]
pub enum Callable {
    /// A primitive.
    Primitive(&'static Primitive),
    /// A definition with a body.
    Def(Rc<DefItem>),
}

impl Callable {
    /// Name of the primitive or definition.
    pub fn name(&self) -> &str {
        match self {
            Callable::Primitive(p) => p.name,
            Callable::Def(item) => &item.def.name.text,
        }
    }

    /// Names of the configuration it takes.
    pub fn config_names(&self) -> Vec<&str> {
        match self {
            Callable::Primitive(p) => p.config.iter().map(|c| c.name).collect(),
            Callable::Def(item) => item.def.config.iter().map(|c| c.name.text.as_str()).collect(),
        }
    }

    /// Names of the configuration that a call may pass by position: excludes shared weights, init
    /// rules, and parameters that take any number of integers.
    pub fn positional(&self) -> Vec<&str> {
        let Callable::Primitive(primitive) = self else { return self.config_names() };
        let plain = |c: &&op::Config| match c.kind {
            ConfigKind::Int
            | ConfigKind::OptionalInt
            | ConfigKind::Decimal
            | ConfigKind::OptionalDecimal
            | ConfigKind::Number
            | ConfigKind::OptionalNumber
            | ConfigKind::Bool
            | ConfigKind::Word(_) => true,
            ConfigKind::Ints | ConfigKind::Tensor | ConfigKind::Weight | ConfigKind::Init => false,
        };
        primitive.config.iter().filter(plain).map(|c| c.name).collect()
    }

    /// Whether a call may pass a tensor by this name.
    pub(crate) fn takes_tensor(&self, name: &str) -> bool {
        let Callable::Primitive(primitive) = self else { return false };
        primitive.config.iter().any(|c| c.name == name && c.kind == ConfigKind::Tensor)
    }

    /// The configuration parameter with that name, for definitions in the language.
    pub fn param(&self, name: &str) -> Option<&ConfigParam> {
        match self {
            Callable::Primitive(_) => None,
            Callable::Def(item) => item.def.config.iter().find(|c| c.name.text == name),
        }
    }

    /// Whether both are the same primitive, or the same definition of the same file.
    pub fn same(&self, other: &Callable) -> bool {
        match (self, other) {
            (Callable::Primitive(a), Callable::Primitive(b)) => a.name == b.name,
            (Callable::Def(a), Callable::Def(b)) => Rc::ptr_eq(a, b),
            (Callable::Primitive(_), Callable::Def(_))
            | (Callable::Def(_), Callable::Primitive(_)) => false,
        }
    }
}

/// A definition with configuration and slot fills, not yet called.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The definition or primitive.
    pub callee: Callable,
    /// Configuration by name, without defaults.
    pub config: BTreeMap<String, Setting>,
    /// Fills, including explicitly empty ones, by slot name. Other slots are empty.
    pub slots: BTreeMap<String, SlotSetting>,
    /// The depth of nested configured definitions; bounded by [`MAX_CHAIN`].
    pub height: usize,
    /// Place of the expression.
    pub span: Span,
}

impl Applied {
    /// A definition without configuration.
    pub fn bare(callee: Callable, span: Span) -> Applied {
        Applied { callee, config: BTreeMap::new(), slots: BTreeMap::new(), height: 1, span }
    }

    /// Raises the height for a nested definition; `Err` if that exceeds the bound.
    pub(crate) fn raise(&mut self, child: Option<&Applied>) -> Result<(), String> {
        let height = child.map_or(1, |child| child.height + 1).max(self.height);
        if height > MAX_CHAIN {
            return Err(format!("definitions can be nested at most {MAX_CHAIN} levels deep"));
        }
        self.height = height;
        Ok(())
    }

    /// Name of the definition.
    pub fn name(&self) -> &str {
        self.callee.name()
    }
}

/// A configuration value as written.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The value, not yet evaluated.
    pub value: SettingValue,
    /// Place of the entry or argument.
    pub span: Span,
}

/// A value before evaluation, with the scope that its names have.
#[derive(Clone, Debug)]
pub enum SettingValue {
    /// Evaluated with the arch's fields and that file's names.
    Expr(Rc<Expr>, FileId),
    /// From a body: evaluated with the body's bindings as well.
    Inside(Rc<Expr>, FileId, Around),
    /// A definition with configuration.
    Def(Rc<Applied>),
}

impl Setting {
    /// The span of its value.
    pub(crate) fn value_span(&self) -> Span {
        match self.value.written() {
            Ok((expr, ..)) => expr.span,
            Err(applied) => applied.span,
        }
    }
}

impl SettingValue {
    pub(crate) fn expression(expr: Rc<Expr>, file: FileId, around: Around) -> SettingValue {
        match around {
            Some(_) => SettingValue::Inside(expr, file, around),
            None => SettingValue::Expr(expr, file),
        }
    }

    /// The expression and its scope; `Err` holds a definition instead.
    pub(crate) fn written(&self) -> Result<(&Expr, FileId, &Around), &Rc<Applied>> {
        match self {
            SettingValue::Expr(expr, file) => Ok((expr, *file, &None)),
            SettingValue::Inside(expr, file, around) => Ok((expr, *file, around)),
            SettingValue::Def(applied) => Err(applied),
        }
    }
}

/// The names of the enclosing body that an expression mentions. A name without a value as configuration
/// (a tensor, or bound in another branch) also shadows definitions.
pub type Around = Option<Rc<BTreeMap<String, Option<Value>>>>;

/// The filling of one slot.
#[derive(Clone, Debug)]
pub struct SlotSetting {
    /// The definition that fills it; None if it is explicitly empty.
    pub fill: Option<Rc<Applied>>,
    /// Place of the entry.
    pub span: Span,
}

/// One entry of the flattened list of layers.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The layer's definition with its configuration.
    pub applied: Rc<Applied>,
    /// Layers of one group are one instance.
    pub share: Option<u32>,
}

/// An arch as a tree: its fields, head, init table and flattened layers.
#[derive(Clone, Debug)]
pub struct ArchTree {
    /// Name of the arch.
    pub name: String,
    /// Its `///` lines.
    pub docs: Vec<String>,
    /// `vocab`, `dim`, `norm_eps`.
    pub fields: BTreeMap<String, Setting>,
    /// The output head: `untied` by default; None after an error.
    pub head: Option<Rc<Applied>>,
    /// The name of the init table chosen last, for display.
    pub init_name: String,
    /// Rules of initial values by the role of a parameter.
    pub init: BTreeMap<String, Setting>,
    /// Layers, in order.
    pub layers: Vec<Layer>,
    /// Place of the arch.
    pub span: Span,
}

/// The fields an arch has besides its layers, head and init table.
pub const ARCH_FIELDS: [&str; 3] = ["vocab", "dim", "norm_eps"];

/// Names that a path in `with` resolves on the arch rather than in every layer.
pub const ARCH_LEVEL: [&str; 6] = ["vocab", "dim", "norm_eps", "head", "init", "layers"];

/// Roles of the parameters that primitives own: the usual rows of an init table.
pub const ROLES: [&str; 7] =
    ["embed", "linear", "bias", "norm", "canon", "short_conv", "short_conv_bias"];

/// Most layers of an arch, checked before any is built.
pub const MAX_LAYERS: usize = 10_000;

/// Maximum length of a chain of `with` or of aliases, depth of nested configured definitions, and
/// length of a path.
pub const MAX_CHAIN: usize = 48;

/// Most configuration values of one definition, and most slots filled in one place.
pub const MAX_CONFIG: usize = 128;

/// The primitive with that name, as a callee.
pub fn primitive(name: &str) -> Option<Callable> {
    op::find(name).map(Callable::Primitive)
}
