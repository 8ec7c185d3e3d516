//! Python's values, as far as templates have them.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::text;

/// The name of the view that `range` returns.
pub(crate) const RANGE: &str = "range";

/// A value of a template. Clones share their contents.
#[derive(Clone, Debug)]
pub enum Value {
    /// A variable, attribute or item that does not exist, with the message of using it.
    Undefined(Arc<str>),
    /// `None`.
    None,
    /// `True` or `False`, which count as 1 and 0.
    Bool(bool),
    /// A whole number. Larger ones than 128 bits are refused.
    Int(i128),
    /// A float.
    Float(f64),
    /// A text.
    Str(Arc<str>),
    /// A text that Jinja2 marks as safe; it may only be printed, since everything joined to it would be escaped.
    Markup(Arc<str>),
    /// A list.
    List(Arc<Items<Value>>),
    /// A tuple.
    Tuple(Arc<Items<Value>>),
    /// A dictionary, in the order of its keys' arrival.
    Map(Arc<Items<(Value, Value)>>),
    /// What `items()`, `keys()` and `values()` return: its name and elements.
    View(&'static str, Arc<Items<Value>>),
    /// Elements that can be read once: the result of `map`, `select` and the like.
    Generator(Arc<Generator>),
    /// A `namespace`, whose attributes a template may set.
    Namespace(Arc<Mutex<Vec<(Value, Value)>>>),
    /// The variable `loop`.
    Loop(Arc<Loop>),
    /// A function by name.
    Function(Arc<str>),
    /// A method of a value.
    Method(Arc<(Value, String)>),
    /// A macro, by number.
    Macro(usize),
}

/// Elements, with the measure of all that they hold.
#[derive(Debug)]
pub struct Items<T> {
    items: Vec<T>,
    measure: Measure,
}

impl<T> std::ops::Deref for Items<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

/// Elements that can be read once.
#[derive(Debug)]
pub struct Generator {
    pub(crate) items: Mutex<VecDeque<Value>>,
    measure: Measure,
}

/// What a value holds, shared parts counted each time. It bounds what comparing, printing and dropping it take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measure {
    pub(crate) depth: usize,
    /// Bytes and elements.
    pub(crate) size: usize,
    /// Whether it holds something that can be changed to hold it.
    pub(crate) is_mutable: bool,
}

impl Measure {
    fn around<'a>(values: impl Iterator<Item = &'a Value>) -> Measure {
        let mut all = Measure::default();
        for inner in values.map(Value::measure) {
            all.depth = all.depth.max(inner.depth + 1);
            all.size = all.size.saturating_add(inner.size).saturating_add(size_of::<Value>());
            all.is_mutable |= inner.is_mutable;
        }
        all
    }
}

/// Most bytes of a text that is taken apart.
const CHARACTERS: usize = 1 << 20;

/// The state of a loop.
#[derive(Debug)]
pub struct Loop {
    pub(crate) items: Vec<Value>,
    pub(crate) index: usize,
    /// What `loop.changed` saw last.
    pub(crate) last: Mutex<Option<Value>>,
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Str(Arc::from(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Str(Arc::from(text))
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Value {
        Value::Bool(truth)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Value {
        Value::List(Value::items(items))
    }
}

impl FromIterator<(String, Value)> for Value {
    fn from_iter<T: IntoIterator<Item = (String, Value)>>(fields: T) -> Value {
        Value::map(fields.into_iter().map(|(key, value)| (Value::from(key), value)).collect())
    }
}

impl Value {
    pub(crate) fn undefined(message: impl AsRef<str>) -> Value {
        Value::Undefined(Arc::from(message.as_ref()))
    }

    pub(crate) fn int(number: usize) -> Value {
        Value::Int(i128::try_from(number).unwrap_or(i128::MAX))
    }

    pub(crate) fn generator(items: impl IntoIterator<Item = Value>) -> Value {
        let items: VecDeque<Value> = items.into_iter().collect();
        let measure = Measure::around(items.iter());
        Value::Generator(Arc::new(Generator { items: Mutex::new(items), measure }))
    }

    pub(crate) fn items(items: Vec<Value>) -> Arc<Items<Value>> {
        let measure = Measure::around(items.iter());
        Arc::new(Items { items, measure })
    }

    /// A tuple.
    pub fn tuple(items: Vec<Value>) -> Value {
        Value::Tuple(Value::items(items))
    }

    /// A dictionary whose keys differ.
    pub(crate) fn map(items: Vec<(Value, Value)>) -> Value {
        let measure = Measure::around(items.iter().flat_map(|(key, value)| [key, value]));
        Value::Map(Arc::new(Items { items, measure }))
    }

    pub(crate) fn measure(&self) -> Measure {
        let leaf = |size: usize, is_mutable: bool| Measure { depth: 0, size, is_mutable };
        match self {
            Value::Str(text) | Value::Markup(text) => leaf(text.len(), false),
            Value::List(items) | Value::Tuple(items) | Value::View(_, items) => items.measure,
            Value::Map(entries) => entries.measure,
            Value::Generator(generator) => generator.measure,
            Value::Method(method) => Measure::around(std::iter::once(&method.0)),
            Value::Namespace(_) | Value::Loop(_) => leaf(0, true),
            Value::Undefined(_)
            | Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Function(_)
            | Value::Macro(_) => leaf(0, false),
        }
    }

    /// The name of its type in Python.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(_) => "str",
            Value::Markup(_) => "Markup",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Map(_) => "dict",
            Value::View(name, _) => name,
            Value::Generator(_) => "generator",
            Value::Namespace(_) => "Namespace",
            Value::Loop(_) => "LoopContext",
            Value::Function(_) | Value::Method(_) => "function",
            Value::Macro(_) => "Macro",
        }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) | Value::Markup(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, if it is one.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Value::Bool(truth) => Some(i128::from(*truth)),
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(number) => Some(*number),
            other => other.as_int().map(|number| number as f64),
        }
    }

    /// The elements of a list or tuple.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Value::List(items) | Value::Tuple(items) | Value::View(_, items) => Some(items),
            _ => None,
        }
    }

    /// The entries of a dictionary.
    pub fn entries(&self) -> Option<&[(Value, Value)]> {
        match self {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The elements of a list, also of one that a filter made.
    pub fn elements(&self) -> Option<Vec<Value>> {
        match self {
            Value::List(_) | Value::Tuple(_) | Value::View(..) | Value::Generator(_) => {
                self.iterate().ok()
            }
            _ => None,
        }
    }

    /// Whether it is `None`.
    pub fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }

    /// Whether it stands for nothing.
    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    /// Whether a condition holds for it.
    pub fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(truth) => *truth,
            Value::Int(number) => *number != 0,
            Value::Float(number) => *number != 0.0,
            Value::Str(text) | Value::Markup(text) => !text.is_empty(),
            Value::List(items) | Value::Tuple(items) | Value::View(_, items) => !items.is_empty(),
            Value::Map(entries) => !entries.is_empty(),
            Value::Generator(_)
            | Value::Namespace(_)
            | Value::Loop(_)
            | Value::Function(_)
            | Value::Method(_)
            | Value::Macro(_) => true,
        }
    }

    /// The value of a key of a dictionary.
    pub fn get(&self, key: &Value) -> Option<Value> {
        let find = |entries: &[(Value, Value)]| {
            entries.iter().find(|(other, _)| other.equals(key)).map(|(_, value)| value.clone())
        };
        match self {
            Value::Map(entries) => find(entries),
            Value::Namespace(entries) => {
                find(&entries.lock().unwrap_or_else(PoisonError::into_inner))
            }
            _ => None,
        }
    }

    /// Number of elements, where Python's `len` has one.
    pub fn len(&self) -> Result<usize, String> {
        match self {
            Value::Undefined(_) => Ok(0),
            Value::Str(text) | Value::Markup(text) => Ok(text.chars().count()),
            Value::List(items) | Value::Tuple(items) | Value::View(_, items) => Ok(items.len()),
            Value::Map(entries) => Ok(entries.len()),
            Value::Loop(state) => Ok(state.items.len()),
            other => Err(format!("object of type '{}' has no len()", other.type_name())),
        }
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> Result<bool, String> {
        Ok(self.len()? == 0)
    }

    /// Its elements, as a `for` reads them. A generator has none afterwards.
    pub fn iterate(&self) -> Result<Vec<Value>, String> {
        match self {
            Value::Undefined(_) => Ok(Vec::new()),
            Value::Str(text) | Value::Markup(text) => {
                // Each is a value of its own.
                if text.len() > CHARACTERS {
                    return Err(format!(
                        "a text of {} bytes, character by character; the limit is {CHARACTERS}",
                        text.len()
                    ));
                }
                Ok(text.chars().map(|c| Value::from(c.encode_utf8(&mut [0; 4]) as &str)).collect())
            }
            Value::List(items) | Value::Tuple(items) | Value::View(_, items) => Ok(items.to_vec()),
            Value::Map(entries) => Ok(entries.iter().map(|(key, _)| key.clone()).collect()),
            Value::Generator(generator) => {
                let mut items = generator.items.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(std::mem::take(&mut *items).into())
            }
            other => Err(format!("'{}' object is not iterable", other.type_name())),
        }
    }

    /// Python's `==`.
    pub fn equals(&self, other: &Value) -> bool {
        let lists = |left: &[Value], right: &[Value]| {
            left.len() == right.len() && left.iter().zip(right).all(|(a, b)| a.equals(b))
        };
        match (self, other) {
            (Value::None, Value::None) | (Value::Undefined(_), Value::Undefined(_)) => true,
            (Value::Str(a) | Value::Markup(a), Value::Str(b) | Value::Markup(b)) => a == b,
            (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => lists(a, b),
            (Value::View(RANGE, a), Value::View(RANGE, b)) => lists(a, b),
            (Value::View("dict_values", a), Value::View("dict_values", b)) => Arc::ptr_eq(a, b),
            // Sets.
            (Value::View(_, a), Value::View(_, b)) => {
                a.len() == b.len() && a.iter().all(|item| b.iter().any(|other| other.equals(item)))
            }
            (Value::Map(a), Value::Map(b)) => {
                a.len() == b.len()
                    && a.iter()
                        .all(|(key, value)| other.get(key).is_some_and(|other| other.equals(value)))
            }
            (Value::Function(a), Value::Function(b)) => a == b,
            (Value::Macro(a), Value::Macro(b)) => a == b,
            (Value::Namespace(a), Value::Namespace(b)) => Arc::ptr_eq(a, b),
            _ => self.number_order(other).is_some_and(|order| order == Some(Ordering::Equal)),
        }
    }

    /// The order of two numbers, a whole one and a float compared exactly; `None` if one is no number.
    fn number_order(&self, other: &Value) -> Option<Option<Ordering>> {
        let exact = |whole: i128, float: f64| match float.fract() == 0.0 && float.abs() < 1e38 {
            true => Some(whole.cmp(&(float as i128))),
            false => (whole as f64).partial_cmp(&float),
        };
        match (self.as_int(), other.as_int()) {
            (Some(a), Some(b)) => Some(Some(a.cmp(&b))),
            (Some(a), None) => Some(exact(a, other.as_float()?)),
            (None, Some(b)) => Some(exact(b, self.as_float()?).map(Ordering::reverse)),
            (None, None) => Some(self.as_float()?.partial_cmp(&other.as_float()?)),
        }
    }

    /// Refuses a value that cannot be a key.
    pub(crate) fn hashable(&self) -> Result<(), String> {
        match self {
            Value::List(_) | Value::Map(_) => {
                Err(format!("unhashable type: '{}'", self.type_name()))
            }
            Value::Tuple(items) => items.iter().try_for_each(Value::hashable),
            _ => Ok(()),
        }
    }

    /// Python's order of two values that have one.
    pub(crate) fn order(&self, other: &Value) -> Result<Option<Ordering>, String> {
        if let Some(order) = self.number_order(other) {
            return Ok(order);
        }
        match (self, other) {
            (Value::Undefined(message), _) | (_, Value::Undefined(message)) => {
                Err(message.to_string())
            }
            (Value::Str(a) | Value::Markup(a), Value::Str(b) | Value::Markup(b)) => {
                Ok(Some(a.cmp(b)))
            }
            (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
                for (left, right) in a.iter().zip(b.iter()) {
                    if !left.equals(right) {
                        return left.order(right);
                    }
                }
                Ok(Some(a.len().cmp(&b.len())))
            }
            _ => Err(format!(
                "'<' not supported between instances of '{}' and '{}'",
                self.type_name(),
                other.type_name()
            )),
        }
    }

    /// Its text: Python's `str`.
    pub fn text(&self) -> Result<String, String> {
        match self {
            Value::Undefined(_) => Ok(String::new()),
            Value::Str(text) | Value::Markup(text) => Ok(text.to_string()),
            other => other.repr(),
        }
    }

    /// Its text inside a list: Python's `repr`.
    pub fn repr(&self) -> Result<String, String> {
        let join = |items: &[Value]| -> Result<String, String> {
            Ok(items.iter().map(Value::repr).collect::<Result<Vec<_>, _>>()?.join(", "))
        };
        Ok(match self {
            Value::Undefined(_) => "Undefined".to_owned(),
            Value::None => "None".to_owned(),
            Value::Bool(true) => "True".to_owned(),
            Value::Bool(false) => "False".to_owned(),
            Value::Int(number) => number.to_string(),
            Value::Float(number) => text::float(*number),
            Value::Str(text) => text::quoted(text),
            Value::Markup(text) => format!("Markup({})", text::quoted(text)),
            Value::List(items) => format!("[{}]", join(items)?),
            Value::Tuple(items) if items.len() == 1 => format!("({},)", join(items)?),
            Value::Tuple(items) => format!("({})", join(items)?),
            Value::View(name, items) if *name != RANGE => format!("{name}([{}])", join(items)?),
            Value::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| {
                    Ok::<_, String>(format!("{}: {}", key.repr()?, value.repr()?))
                });
                format!("{{{}}}", entries.collect::<Result<Vec<_>, _>>()?.join(", "))
            }
            Value::View(..)
            | Value::Generator(_)
            | Value::Namespace(_)
            | Value::Loop(_)
            | Value::Function(_)
            | Value::Method(_)
            | Value::Macro(_) => {
                return Err(format!(
                    "a {} is printed, whose text in Python shows no elements; `| list` prints them",
                    self.type_name()
                ));
            }
        })
    }
}
