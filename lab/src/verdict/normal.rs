//! Reduces an arch's tree to plain form: settings that only repeat a default are removed.
//!
//! Trees with equal fields and definitions have equal plain forms however they were written, so a verdict cannot depend on
//! spelling. The plain form compiles to the same arch, or there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dsl::{BinaryOp, ConfigParam, Decimal, Diagnostics, Expr, ExprKind, Name, Span, UnaryOp};

use crate::experiment::split_layer;
use compiler::arch;
use compiler::canonical::identify;
use compiler::elaborate::{Elaborated, elaborate};
use compiler::op::{Default, Primitive};
use compiler::program::Compiled;
use compiler::resolve::Library;
use compiler::tree::{Applied, ArchTree, Callable, DefItem, Setting, SettingValue, SlotSetting};

/// A plain tree, and the paths of fields that were written although the same value would follow.
pub(super) struct Plain {
    pub(super) tree: ArchTree,
    pub(super) idle: BTreeSet<String>,
}

/// Prefix of the probe that computes a default. It contains spaces, so no name in a text can be equal to it.
const PROBE: &str = "default of ";

/// How many failing defaults are skipped, one at a time: an unused default may fail.
const MAX_TRIES: usize = 64;

/// Values by the path below the arch, or below a layer.
type Values = BTreeMap<String, String>;

/// A definition's plain form, and the settings that were written in it without need.
type Bare = (Rc<Applied>, BTreeSet<String>);

/// Computes the plain form; `Err` gives the reason if there is none.
pub(super) fn plain(library: &Library, arch: &Compiled) -> Result<Plain, String> {
    let fields = probed(library, &arch.tree)?;
    let (mut top, mut layers) = (Values::new(), BTreeMap::<usize, Values>::new());
    for (path, value) in fields {
        match split_layer(&path) {
            Some((layer, rest)) => layers.entry(layer).or_default().insert(rest.to_owned(), value),
            None => top.insert(path, value),
        };
    }
    let mut idle = BTreeSet::new();
    let mut tree = arch.tree.clone();
    for (name, setting) in &mut tree.fields {
        if let Some(value) = top.get(name).and_then(|text| literal(text, setting.span)) {
            setting.value = value;
        }
    }
    if let Some(head) = &tree.head {
        let mut walk = Walk { library, values: &top, idle: BTreeSet::new() };
        tree.head = Some(Rc::new(walk.applied(head, "head", "head.slots")));
        idle.extend(walk.idle);
    }
    // `share` belongs to the layer, not to the settings of its definition.
    layers.values_mut().for_each(|values| _ = values.remove("share"));
    // Layers that share a definition and have equal values share the plain form.
    let mut done: BTreeMap<(*const Applied, String), Bare> = BTreeMap::new();
    let nothing = Values::new();
    let uneven = uneven(&tree, &layers);
    for (number, layer) in tree.layers.iter_mut().enumerate() {
        // All layers of a shared instance have one text, which may use the layer number: keep it.
        if layer.share.is_some_and(|group| uneven.contains(&group)) {
            continue;
        }
        let values = layers.get(&number).unwrap_or(&nothing);
        let all: String = values.iter().map(|(path, value)| format!("{path}\0{value}\0")).collect();
        let key = (Rc::as_ptr(&layer.applied), all);
        let (bare, unneeded) = done.entry(key).or_insert_with(|| {
            let mut walk = Walk { library, values, idle: BTreeSet::new() };
            let bare = walk.applied(&layer.applied, "", "slots");
            (Rc::new(bare), walk.idle)
        });
        layer.applied = bare.clone();
        idle.extend(unneeded.iter().map(|rest| format!("layers.{number}.{rest}")));
    }
    let elaborated = elaborate(library, &tree, &mut Diagnostics::new());
    let same = elaborated.is_some_and(|elaborated| {
        let identity = identify(&elaborated.graph());
        (identity.graph, identity.manifest) == (arch.identity.graph, arch.identity.manifest)
    });
    if same {
        Ok(Plain { tree, idle })
    } else {
        Err(format!(
            "`{}` without the settings that repeat defaults is a different arch",
            arch.name
        ))
    }
}

/// Groups of layers that share an instance and have a field that depends on the layer number.
fn uneven(tree: &ArchTree, values: &BTreeMap<usize, Values>) -> BTreeSet<u32> {
    let mut first: BTreeMap<u32, Option<&Values>> = BTreeMap::new();
    let mut groups = BTreeSet::new();
    for (number, layer) in tree.layers.iter().enumerate() {
        let Some(group) = layer.share else { continue };
        let values = values.get(&number);
        if *first.entry(group).or_insert(values) != values {
            groups.insert(group);
        }
    }
    groups
}

/// The fields of an arch, plus the default of each field that was written.
fn probed(library: &Library, tree: &ArchTree) -> Result<Values, String> {
    let mut skipped: BTreeSet<Span> = BTreeSet::new();
    let mut reason = String::new();
    for _ in 0..MAX_TRIES {
        let mut asked: BTreeSet<Span> = BTreeSet::new();
        let mut done: BTreeMap<*const Applied, Rc<Applied>> = BTreeMap::new();
        let mut with = tree.clone();
        let mut ask = |applied: &Rc<Applied>| {
            let copy = done
                .entry(Rc::as_ptr(applied))
                .or_insert_with(|| Rc::new(asking(applied, &skipped, &mut asked)));
            copy.clone()
        };
        with.head = with.head.as_ref().map(&mut ask);
        for layer in &mut with.layers {
            layer.applied = ask(&layer.applied);
        }
        let mut diagnostics = Diagnostics::new();
        if let Some(Elaborated { fields, .. }) = elaborate(library, &with, &mut diagnostics) {
            return Ok(fields.into_iter().map(|field| (field.path, field.value)).collect());
        }
        let errors = diagnostics.iter().filter(|d| d.is_error());
        reason = errors.clone().next().map_or_else(String::new, |d| d.message.clone());
        let spans: Vec<Span> = errors.flat_map(|d| &d.labels).map(|label| label.span).collect();
        let inside = |span: &Span, setting: &Span| {
            span.file == setting.file && setting.start <= span.start && span.end <= setting.end
        };
        let failed = asked.into_iter().filter(|at| spans.iter().any(|span| inside(span, at)));
        let failed: Vec<Span> = failed.collect();
        if failed.is_empty() {
            break;
        }
        skipped.extend(failed);
    }
    Err(format!("the defaults of `{}` cannot be computed: {reason}", tree.name))
}

/// A copy of a definition that also computes the defaults of written settings.
fn asking(applied: &Applied, skipped: &BTreeSet<Span>, asked: &mut BTreeSet<Span>) -> Applied {
    let mut out = applied.clone();
    for setting in out.config.values_mut() {
        if let SettingValue::Def(inner) = &setting.value {
            setting.value = SettingValue::Def(Rc::new(asking(inner, skipped, asked)));
        }
    }
    for slot in out.slots.values_mut() {
        slot.fill = slot.fill.as_ref().map(|fill| Rc::new(asking(fill, skipped, asked)));
    }
    let Callable::Def(item) = &applied.callee else { return out };
    let mut config = Vec::new();
    for param in &item.def.config {
        if let Some(default) = &param.default
            && applied.config.contains_key(&param.name.text)
            && !skipped.contains(&default.span)
        {
            // Placed before the parameter, so that it sees the same names as the default.
            asked.insert(default.span);
            let name = Name { text: format!("{PROBE}{}", param.name.text), span: param.name.span };
            config.push(ConfigParam { name, default: Some(default.clone()) });
        }
        config.push(param.clone());
    }
    if config.len() > item.def.config.len() {
        let def = dsl::Def { config, ..item.def.clone() };
        out.callee = Callable::Def(Rc::new(DefItem { file: item.file, def }));
    }
    out
}

struct Walk<'a> {
    library: &'a Library,
    values: &'a Values,
    idle: BTreeSet<String>,
}

impl Walk<'_> {
    /// The plain form of a definition with its fields below `at`.
    fn applied(&mut self, applied: &Applied, at: &str, slots: &str) -> Applied {
        let join = |name: &str| {
            if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
        };
        let mut out = applied.clone();
        out.config.clear();
        out.slots.clear();
        for (name, setting) in &applied.config {
            let path = join(name);
            let value = match &setting.value {
                SettingValue::Def(inner) => {
                    let inner = self.applied(inner, &path, "");
                    let default = self.definition(applied, name);
                    let same = default.is_some_and(|default| {
                        default.callee.same(&inner.callee) && default.config.is_empty()
                    });
                    if same {
                        self.idle.insert(path);
                    }
                    if same && inner.config.is_empty() {
                        continue;
                    }
                    SettingValue::Def(Rc::new(inner))
                }
                written @ (SettingValue::Expr(..) | SettingValue::Inside(..)) => {
                    let value = self.values.get(&path);
                    let default = match &applied.callee {
                        Callable::Def(_) => {
                            self.values.get(&join(&format!("{PROBE}{name}"))).cloned()
                        }
                        Callable::Primitive(primitive) => constant(primitive, name),
                    };
                    if default.is_some() && value == default.as_ref() {
                        self.idle.insert(path);
                        continue;
                    }
                    value
                        .and_then(|text| literal(text, setting.span))
                        .unwrap_or_else(|| written.clone())
                }
            };
            out.config.insert(name.clone(), Setting { value, span: setting.span });
        }
        for (name, SlotSetting { fill, span }) in &applied.slots {
            // Slots are empty by default.
            let path = format!("{slots}.{name}");
            match fill {
                Some(fill) => {
                    let fill = Some(Rc::new(self.applied(fill, &path, "")));
                    out.slots.insert(name.clone(), SlotSetting { fill, span: *span });
                }
                None => {
                    self.idle.insert(path);
                }
            }
        }
        out
    }

    fn definition(&self, applied: &Applied, name: &str) -> Option<Rc<Applied>> {
        let Callable::Def(item) = &applied.callee else { return None };
        let default = applied.callee.param(name)?.default.as_ref()?;
        arch::definition(self.library, item.file, default, &mut Diagnostics::new())
    }
}

/// The default of a primitive's configuration, as its field would show it.
pub(super) fn constant(primitive: &Primitive, name: &str) -> Option<String> {
    match primitive.config.iter().find(|config| config.name == name)?.default {
        Default::Int(n) => Some(n.to_string()),
        Default::Decimal(mantissa, exponent) => {
            Decimal::new(i128::from(mantissa), exponent).ok().map(|d| d.to_string())
        }
        Default::Bool(truth) => Some(truth.to_string()),
        Default::Word(word) => Some(word.to_owned()),
        Default::Absent => Some("none".to_owned()),
        Default::Required | Default::ArchField(_) => None,
    }
}

/// An effective value as a setting; `None` if it is not a number, a boolean or a word.
pub(super) fn literal(text: &str, span: Span) -> Option<SettingValue> {
    let expr = |kind| Expr { kind, span };
    let number = |text: &str| -> Option<Expr> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let plain = match digits.parse::<i64>() {
            Ok(n) => expr(ExprKind::Int(n)),
            Err(_) => expr(ExprKind::Decimal(Decimal::parse(digits).ok()?)),
        };
        Some(if negative { expr(ExprKind::Unary(UnaryOp::Neg, Box::new(plain))) } else { plain })
    };
    let word = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let value = match text {
        "true" | "false" => expr(ExprKind::Bool(text == "true")),
        text => match (number(text), text.split_once('/')) {
            (Some(number), _) => number,
            (None, Some((over, under))) => {
                let (over, under) = (Box::new(number(over)?), Box::new(number(under)?));
                expr(ExprKind::Binary(BinaryOp::Div, over, under))
            }
            (None, None) if word(text) => expr(ExprKind::Name(text.to_owned())),
            (None, None) => return None,
        },
    };
    Some(SettingValue::Expr(Rc::new(value), span.file))
}
