//! An architecture as a finite tree of fields: what `with` edits and `elaborate` reads.
//!
//! In: resolved definitions. Out: data. Must stay true: equal layers written once stay one shared
//! `Rc` until an edit tells them apart, so ten thousand equal layers cost one; every setting keeps
//! the file whose names it may use.

use std::collections::BTreeMap;
use std::rc::Rc;

use dsl::{ConfigParam, Def, Expr, FileId, Span};

use crate::op::{self, Primitive};
use crate::value::Value;

/// A definition with its file, whose scope its body sees.
#[derive(Debug)]
pub struct DefItem {
    pub file: FileId,
    pub def: Def,
}

/// What a call runs.
#[derive(Clone, Debug)]
pub enum Callable {
    Primitive(&'static Primitive),
    Def(Rc<DefItem>),
}

impl Callable {
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

    /// The configuration parameter of that name, for definitions in the language.
    pub fn param(&self, name: &str) -> Option<&ConfigParam> {
        match self {
            Callable::Primitive(_) => None,
            Callable::Def(item) => item.def.config.iter().find(|c| c.name.text == name),
        }
    }

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
    pub callee: Callable,
    pub config: BTreeMap<String, Setting>,
    /// Fills and explicit emptiness by slot name; a slot not named here is empty.
    pub slots: BTreeMap<String, SlotSetting>,
    pub span: Span,
}

impl Applied {
    pub fn bare(callee: Callable, span: Span) -> Applied {
        Applied { callee, config: BTreeMap::new(), slots: BTreeMap::new(), span }
    }

    pub fn name(&self) -> &str {
        self.callee.name()
    }
}

#[derive(Clone, Debug)]
pub struct Setting {
    pub value: SettingValue,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum SettingValue {
    /// Evaluated in the arch's fields and that file's names.
    Expr(Rc<Expr>, FileId),
    /// Evaluated already, in the body that configured it.
    Known(Value),
    Def(Rc<Applied>),
}

#[derive(Clone, Debug)]
pub struct SlotSetting {
    pub fill: Option<Rc<Applied>>,
    pub span: Span,
}

/// One entry of the flattened list of layers.
#[derive(Clone, Debug)]
pub struct Layer {
    pub applied: Rc<Applied>,
    /// Layers of one group are one instance.
    pub share: Option<u32>,
}

#[derive(Clone, Debug)]
pub struct ArchTree {
    pub name: String,
    pub docs: Vec<String>,
    /// `vocab`, `dim`, `norm_eps`.
    pub fields: BTreeMap<String, Setting>,
    pub head: Option<Rc<Applied>>,
    /// The name of the init table last chosen, for people.
    pub init_name: String,
    pub init: BTreeMap<String, Setting>,
    pub layers: Vec<Layer>,
    pub span: Span,
}

/// The fields an arch has besides its layers, head and init table.
pub const ARCH_FIELDS: [&str; 3] = ["vocab", "dim", "norm_eps"];

/// Names that a path in `with` reads at the arch's level rather than in every layer.
pub const ARCH_LEVEL: [&str; 6] = ["vocab", "dim", "norm_eps", "head", "init", "layers"];

/// The most layers an arch may have, checked before any is built.
pub const MAX_LAYERS: usize = 10_000;

/// What a bare name can be configured as: a callable by that name in a scope.
pub fn primitive(name: &str) -> Option<Callable> {
    op::find(name).map(Callable::Primitive)
}
