//! The fields of an arch by what they are rather than where: one entry for a field of all layers.
//!
//! In: the fields of a compiled arch and its definitions. Out: cells by general path
//! (`arch.layers.*.mixer.heads`) and layer. Must stay true: two cells are equal only if their values
//! are, and, where a value names a definition, if all that the definition says and uses is.

use std::collections::{BTreeMap, BTreeSet};

use dsl::{FileId, Item, Span};

use crate::elaborate::Field;
use crate::lock::split_layer;
use crate::names;

/// `None` for fields of the arch itself.
pub(super) type Layer = Option<usize>;

/// One field of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) value: String,
    pub(super) written: bool,
    pub(super) span: Span,
}

/// Cells by general path, then layer.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    cells: BTreeMap<String, BTreeMap<Layer, Cell>>,
}

impl Index {
    pub(super) fn new(fields: &[Field]) -> Index {
        let mut cells: BTreeMap<String, BTreeMap<Layer, Cell>> = BTreeMap::new();
        for field in fields {
            let (path, layer) = match split_layer(&field.path) {
                Some((layer, "")) => ("arch.layers.*".to_owned(), Some(layer)),
                Some((layer, rest)) => (format!("arch.layers.*.{rest}"), Some(layer)),
                None => (format!("arch.{}", field.path), None),
            };
            let Field { path: _, value, written, span } = field;
            let cell = Cell { value: value.clone(), written: *written, span: *span };
            cells.entry(path).or_default().insert(layer, cell);
        }
        Index { cells }
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &String> {
        self.cells.keys()
    }

    pub(super) fn get(&self, path: &str, layer: Layer) -> Option<&Cell> {
        self.cells.get(path)?.get(&layer)
    }

    fn layers(&self, path: &str) -> impl Iterator<Item = Layer> {
        self.cells.get(path).into_iter().flat_map(|cells| cells.keys().copied())
    }
}

/// What the definitions of an arch text say, by name: each with all that it uses.
#[derive(Clone, Debug, Default)]
pub(super) struct Definitions {
    /// Own text and place.
    pub(super) own: BTreeMap<String, (String, Span)>,
    whole: BTreeMap<String, String>,
}

impl Definitions {
    pub(super) fn new(file: FileId, text: &str) -> Definitions {
        let (ast, _) = dsl::parse(file, text);
        let mut own = BTreeMap::new();
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for item in &ast.items {
            let name = match item {
                Item::Def(def) => &def.name,
                Item::Alias(alias) => &alias.name,
                Item::Init(table) => &table.name,
                Item::Arch(_) => continue,
            };
            let alone = dsl::Ast { items: vec![item.clone()], ..dsl::Ast::default() };
            own.insert(name.text.clone(), (dsl::print(&alone), name.span));
            let used = names::references(item).into_iter().map(|name| name.text).collect();
            uses.insert(name.text.clone(), used);
        }
        let mut whole = BTreeMap::new();
        for name in own.keys() {
            let (mut closure, mut open) = (BTreeSet::new(), vec![name.clone()]);
            while let Some(next) = open.pop() {
                if own.contains_key(&next) && closure.insert(next.clone()) {
                    open.extend(uses.get(&next).into_iter().flatten().cloned());
                }
            }
            let texts =
                closure.iter().filter_map(|name| own.get(name)).map(|(text, _)| text.as_str());
            whole.insert(name.clone(), texts.collect::<Vec<_>>().concat());
        }
        Definitions { own, whole }
    }
}

/// Two arms' fields side by side.
pub(super) struct Pair<'a> {
    pub(super) a: &'a Index,
    pub(super) b: &'a Index,
    pub(super) definitions: [&'a Definitions; 2],
}

impl Pair<'_> {
    /// Every general path of either arm.
    pub(super) fn paths(&self) -> BTreeSet<&String> {
        self.a.paths().chain(self.b.paths()).collect()
    }

    /// The layers where the arms differ at a path.
    pub(super) fn differing(&self, path: &str) -> Vec<Layer> {
        let layers: BTreeSet<Layer> = self.a.layers(path).chain(self.b.layers(path)).collect();
        layers.into_iter().filter(|layer| self.differ(path, *layer)).collect()
    }

    pub(super) fn differ(&self, path: &str, layer: Layer) -> bool {
        match (self.a.get(path, layer), self.b.get(path, layer)) {
            (Some(a), Some(b)) => a.value != b.value || self.defined_differently(&a.value),
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
        }
    }

    /// Whether a name stands for different definitions in the two arms.
    pub(super) fn defined_differently(&self, name: &str) -> bool {
        let [a, b] = self.definitions;
        a.whole.get(name) != b.whole.get(name)
    }

    /// Whether someone chose the value, in either arm.
    pub(super) fn written(&self, path: &str, layer: Layer) -> bool {
        let written = |index: &Index| index.get(path, layer).is_some_and(|cell| cell.written);
        written(self.a) || written(self.b)
    }
}
