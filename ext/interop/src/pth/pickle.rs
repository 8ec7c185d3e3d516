//! Reads the part of pickle that a map of tensors needs: texts, numbers, lists, maps and tensors' places.
//!
//! Of the opcodes that call, import or build, only REDUCE, BUILD and BINPERSID are known: REDUCE and BINPERSID only with
//! the four names below, BUILD only for the attributes of a map, which are dropped. Stack, memo, depth and counts are
//! bounded by the bytes read; every byte is used; no input panics.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Entries, StorageKind};

/// The maximum size of a pickle in bytes.
pub(super) const MAX_PICKLE: u64 = 16 << 20;
/// The maximum number of instructions: about 45 for a tensor. Each can make a value of a hundred bytes.
const MAX_INSTRUCTIONS: usize = 3 << 19;
/// About the bytes of the value that a pickle makes, which can name a part of it many times.
const MAX_VALUE: usize = 64 << 20;
/// The maximum nesting of lists and maps.
const MAX_DEPTH: usize = 32;
/// The maximum number of axes of a tensor.
const MAX_AXES: usize = 8;

/// A value in a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Item>),
    /// Keys that are numbers are kept as their digits.
    Map(Entries),
    Tensor(Tensor),
}

/// A view of a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(super) storage: Storage,
    pub(super) offset: u64,
    pub(super) shape: Vec<i64>,
    pub(super) strides: Vec<i64>,
}

/// A block of numbers, with the name of its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    pub(super) kind: StorageKind,
    pub(super) key: String,
    pub(super) count: u64,
}

impl Item {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Item::None => "nothing",
            Item::Bool(_) => "a truth",
            Item::Int(_) => "an integer",
            Item::Float(_) => "a float",
            Item::Text(_) => "a text",
            Item::List(_) => "a list",
            Item::Map(_) => "a map",
            Item::Tensor(_) => "a tensor",
        }
    }
}

/// A name that a checkpoint may contain.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Global {
    Rebuild,
    Parameter,
    OrderedDict,
    Storage(StorageKind),
}

/// An entry of the stack. Lists and maps are shared: the memo may name one before it is filled.
#[derive(Clone, Debug)]
enum Cell {
    Mark,
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    /// With the nesting depth of tuples in it, which bounds the recursion when it is dropped.
    Tuple(Rc<[Cell]>, usize),
    /// An index into the arena.
    List(usize),
    Map(usize),
    Global(Global),
    Storage(Rc<Storage>),
    Tensor(Rc<Tensor>),
}

/// Reads one object.
pub(super) fn read(bytes: &[u8]) -> Result<Item, String> {
    if bytes.len() as u64 > MAX_PICKLE {
        return Err(format!("its pickle has {}", dsl::over(bytes.len() as u64, MAX_PICKLE)));
    }
    let mut machine = Machine { bytes, at: 0, ..Machine::default() };
    let root = machine.run()?;
    if machine.at != bytes.len() {
        return Err(format!("{} bytes follow the end of its pickle", bytes.len() - machine.at));
    }
    let mut budget = MAX_VALUE;
    machine.item(&root, 0, &mut budget)
}

#[derive(Default)]
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Cell>,
    memo: BTreeMap<u32, Cell>,
    lists: Vec<Vec<Cell>>,
    maps: Vec<Vec<(Cell, Cell)>>,
    /// Values of attributes that were looked at.
    looked_at: usize,
}

impl<'a> Machine<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken =
            taken.ok_or_else(|| format!("its pickle ends in the middle, at byte {}", self.at))?;
        self.at += count;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| "its pickle ends in the middle".to_owned())
    }

    fn byte(&mut self) -> Result<u8, String> {
        let [byte] = self.number()?;
        Ok(byte)
    }

    fn pop(&mut self) -> Result<Cell, String> {
        match self.stack.pop() {
            Some(Cell::Mark) | None => {
                Err(format!("its pickle pops from an empty stack, at byte {}", self.at))
            }
            Some(cell) => Ok(cell),
        }
    }

    /// Takes all values above the last mark, and the mark, off the stack.
    fn above_mark(&mut self) -> Result<Vec<Cell>, String> {
        let mark = self.stack.iter().rposition(|cell| matches!(cell, Cell::Mark));
        let mark = mark.ok_or_else(|| format!("its pickle has no mark, at byte {}", self.at))?;
        let cells = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(cells)
    }

    fn tuple(&mut self, count: usize) -> Result<(), String> {
        let mut cells = Vec::new();
        for _ in 0..count {
            cells.push(self.pop()?);
        }
        cells.reverse();
        self.push_tuple(cells)
    }

    fn push_tuple(&mut self, cells: Vec<Cell>) -> Result<(), String> {
        let depth = |cell: &Cell| if let Cell::Tuple(_, depth) = cell { *depth } else { 0 };
        let depth = 1 + cells.iter().map(depth).max().unwrap_or(0);
        if depth > MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} deep"));
        }
        self.stack.push(Cell::Tuple(cells.into(), depth));
        Ok(())
    }

    fn text(&mut self, length: u64) -> Result<Cell, String> {
        let length = usize::try_from(length).map_err(|_| "a string is too long".to_owned())?;
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes).map_err(|_| "a string is not UTF-8".to_owned())?;
        Ok(Cell::Text(text.into()))
    }

    fn keep(&mut self, slot: u32) -> Result<(), String> {
        match self.stack.last() {
            None | Some(Cell::Mark) => Err("its pickle memoizes from an empty stack".to_owned()),
            Some(cell) => {
                self.memo.insert(slot, cell.clone());
                Ok(())
            }
        }
    }

    fn recall(&mut self, slot: u32) -> Result<(), String> {
        let cell = self.memo.get(&slot).cloned();
        self.stack.push(
            cell.ok_or_else(|| format!("its pickle reads memo {slot}, which was never written"))?,
        );
        Ok(())
    }

    fn line(&mut self) -> Result<&'a str, String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().take(200).position(|b| *b == b'\n').ok_or("a name does not end")?;
        let line = self.take(end)?;
        self.take(1)?;
        std::str::from_utf8(line).map_err(|_| "a name is not UTF-8".to_owned())
    }

    fn run(&mut self) -> Result<Cell, String> {
        if self.byte()? != 0x80 {
            return Err("it does not begin like a pickle".to_owned());
        }
        match self.byte()? {
            2..=4 => {}
            protocol => {
                return Err(format!(
                    "its pickle uses protocol {protocol}, but only 2 to 4 are supported"
                ));
            }
        }
        for _ in 0..MAX_INSTRUCTIONS {
            let at = self.at;
            match self.byte()? {
                b'.' => {
                    let root = self.pop()?;
                    return match self.stack.is_empty() {
                        true => Ok(root),
                        false => Err("its pickle leaves values on the stack".to_owned()),
                    };
                }
                opcode => self.execute(opcode, at)?,
            }
        }
        Err(format!("its pickle has more than {MAX_INSTRUCTIONS} instructions"))
    }

    /// Executes the opcode at byte `at`.
    fn execute(&mut self, opcode: u8, at: usize) -> Result<(), String> {
        if let Some(cell) = self.literal(opcode)? {
            self.stack.push(cell);
            return Ok(());
        }
        match opcode {
            // BINPUT, LONG_BINPUT, MEMOIZE, BINGET, LONG_BINGET
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.memoize(opcode),
            // FRAME: a length that only streaming readers need.
            0x95 => self.take(8).map(|_| ()),
            b't' => {
                let cells = self.above_mark()?;
                self.push_tuple(cells)
            }
            0x85 => self.tuple(1),
            0x86 => self.tuple(2),
            0x87 => self.tuple(3),
            b'a' => {
                let cell = self.pop()?;
                self.extend(vec![cell])
            }
            b'e' => {
                let cells = self.above_mark()?;
                self.extend(cells)
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(vec![key, value])
            }
            b'u' => {
                let cells = self.above_mark()?;
                self.set(cells)
            }
            b'R' => self.reduce(),
            b'b' => self.build(),
            _ => Err(format!(
                "its pickle has opcode 0x{opcode:02x} at byte {at}, which a map of tensors does not need"
            )),
        }
    }

    /// The cell that an opcode pushes: a mark, a value, a global or a storage. `None` for the opcodes that do more.
    fn literal(&mut self, opcode: u8) -> Result<Option<Cell>, String> {
        Ok(Some(match opcode {
            b'}' => self.new_map(),
            b']' => {
                self.lists.push(Vec::new());
                Cell::List(self.lists.len() - 1)
            }
            b')' => Cell::Tuple(Rc::new([]), 1),
            b'(' => Cell::Mark,
            b'N' => Cell::None,
            0x88 => Cell::Bool(true),
            0x89 => Cell::Bool(false),
            b'K' => Cell::Int(i64::from(self.byte()?)),
            b'M' => Cell::Int(i64::from(u16::from_le_bytes(self.number()?))),
            b'J' => Cell::Int(i64::from(i32::from_le_bytes(self.number()?))),
            // LONG1: the opcode for large counts.
            0x8a => {
                let length = usize::from(self.byte()?);
                Cell::Int(long(self.take(length)?)?)
            }
            b'G' => Cell::Float(f64::from_be_bytes(self.number()?)),
            b'X' => {
                let length = u32::from_le_bytes(self.number()?);
                self.text(u64::from(length))?
            }
            0x8c => {
                let length = self.byte()?;
                self.text(u64::from(length))?
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                Cell::Global(global(module, name)?)
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Cell::Text(module), Cell::Text(name)) = (module, name) else {
                    return Err("its pickle has a global without a name".to_owned());
                };
                Cell::Global(global(&module, &name)?)
            }
            b'Q' => {
                let id = self.pop()?;
                Cell::Storage(Rc::new(storage(&id)?))
            }
            _ => return Ok(None),
        }))
    }

    /// Executes an opcode that writes or reads the memo.
    fn memoize(&mut self, opcode: u8) -> Result<(), String> {
        let slot = match opcode {
            b'q' | b'h' => u32::from(self.byte()?),
            b'r' | b'j' => u32::from_le_bytes(self.number()?),
            _ => u32::try_from(self.memo.len()).unwrap_or(u32::MAX),
        };
        match opcode {
            b'h' | b'j' => self.recall(slot),
            _ => self.keep(slot),
        }
    }

    fn new_map(&mut self) -> Cell {
        self.maps.push(Vec::new());
        Cell::Map(self.maps.len() - 1)
    }

    fn extend(&mut self, cells: Vec<Cell>) -> Result<(), String> {
        match self.stack.last() {
            Some(Cell::List(index)) => {
                if let Some(list) = self.lists.get_mut(*index) {
                    list.extend(cells);
                }
                Ok(())
            }
            _ => Err(format!(
                "its pickle appends to a value that is not a list, at byte {}",
                self.at
            )),
        }
    }

    fn set(&mut self, cells: Vec<Cell>) -> Result<(), String> {
        let Some(Cell::Map(index)) = self.stack.last() else {
            return Err(format!(
                "its pickle sets a key of a value that is not a map, at byte {}",
                self.at
            ));
        };
        let Some(map) = self.maps.get_mut(*index) else { return Ok(()) };
        let mut cells = cells.into_iter();
        while let Some(key) = cells.next() {
            let value = cells.next().ok_or("its pickle has a key without a value")?;
            map.push((key, value));
        }
        Ok(())
    }

    /// Attributes of a map, such as the `_metadata` of a state_dict. They describe modules, not tensors.
    fn build(&mut self) -> Result<(), String> {
        let state = self.pop()?;
        let (Some(Cell::Map(_)), Cell::Map(state)) = (self.stack.last(), &state) else {
            return Err("its pickle sets attributes of a value that is not a map".to_owned());
        };
        let mut looked_at = self.looked_at;
        let attributes = self.maps.get(*state).map_or(&[][..], Vec::as_slice);
        for (name, value) in attributes {
            if !matches!(name, Cell::Text(_)) || !self.is_plain(value, 0, &mut looked_at) {
                return Err("an attribute of a map is not made of plain values".to_owned());
            }
        }
        self.looked_at = looked_at;
        Ok(())
    }

    /// Whether a value consists of texts, numbers and maps of them.
    fn is_plain(&self, cell: &Cell, depth: usize, looked_at: &mut usize) -> bool {
        *looked_at += 1;
        // The same map can be an attribute many times.
        if *looked_at > MAX_INSTRUCTIONS {
            return false;
        }
        match cell {
            Cell::None | Cell::Bool(_) | Cell::Int(_) | Cell::Float(_) | Cell::Text(_) => true,
            Cell::Map(index) => {
                let mut entries = self.maps.get(*index).into_iter().flatten();
                // Deep enough for a map of modules with a map of versions; sharing could make deeper ones large.
                depth < 3
                    && entries.all(|(key, value)| {
                        matches!(key, Cell::Text(_)) && self.is_plain(value, depth + 1, looked_at)
                    })
            }
            Cell::Mark
            | Cell::Tuple(..)
            | Cell::List(_)
            | Cell::Global(_)
            | Cell::Storage(_)
            | Cell::Tensor(_) => false,
        }
    }

    /// A call of one of the names.
    fn reduce(&mut self) -> Result<(), String> {
        let (arguments, callee) = (self.pop()?, self.pop()?);
        let (Cell::Tuple(arguments, _), Cell::Global(callee)) = (&arguments, &callee) else {
            return Err("its pickle calls a value that is not a function".to_owned());
        };
        let result = match (callee, arguments.as_ref()) {
            (Global::OrderedDict, []) => self.new_map(),
            (
                Global::Rebuild,
                [
                    Cell::Storage(storage),
                    Cell::Int(offset),
                    Cell::Tuple(shape, _),
                    Cell::Tuple(strides, _),
                    Cell::Bool(_),
                    Cell::Map(hooks),
                ],
            ) => {
                if self.maps.get(*hooks).is_none_or(|hooks| !hooks.is_empty()) {
                    return Err("a tensor has hooks".to_owned());
                }
                Cell::Tensor(Rc::new(Tensor {
                    storage: (**storage).clone(),
                    offset: u64::try_from(*offset)
                        .map_err(|_| format!("a tensor begins at {offset}"))?,
                    shape: extents(shape)?,
                    strides: extents(strides)?,
                }))
            }
            (Global::Parameter, [Cell::Tensor(tensor), Cell::Bool(_), Cell::Map(hooks)]) => {
                if self.maps.get(*hooks).is_none_or(|hooks| !hooks.is_empty()) {
                    return Err("a parameter has hooks".to_owned());
                }
                Cell::Tensor(Rc::clone(tensor))
            }
            _ => return Err("its pickle calls a known name with unknown arguments".to_owned()),
        };
        self.stack.push(result);
        Ok(())
    }

    /// A cell with all its contents. `budget` bounds the growth by sharing.
    fn item(&self, cell: &Cell, depth: usize, budget: &mut usize) -> Result<Item, String> {
        if depth > MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} deep"));
        }
        let size = size_of::<Item>() + size_of::<String>();
        *budget = budget.checked_sub(size).ok_or("it contains itself too often")?;
        Ok(match cell {
            Cell::None => Item::None,
            Cell::Bool(b) => Item::Bool(*b),
            Cell::Int(n) => Item::Int(*n),
            Cell::Float(x) => Item::Float(*x),
            Cell::Text(text) => {
                *budget = budget.checked_sub(text.len()).ok_or("it contains itself too often")?;
                Item::Text(text.to_string())
            }
            Cell::Tensor(tensor) => Item::Tensor((**tensor).clone()),
            Cell::Tuple(cells, _) => self.items(cells, depth, budget)?,
            Cell::List(index) => {
                self.items(self.lists.get(*index).map_or(&[], Vec::as_slice), depth, budget)?
            }
            Cell::Map(index) => {
                let mut map = Entries::new();
                for (key, value) in self.maps.get(*index).into_iter().flatten() {
                    let name = match key {
                        Cell::Text(text) => text.to_string(),
                        Cell::Int(n) => n.to_string(),
                        Cell::Mark
                        | Cell::None
                        | Cell::Bool(_)
                        | Cell::Float(_)
                        | Cell::Tuple(..)
                        | Cell::List(_)
                        | Cell::Map(_)
                        | Cell::Global(_)
                        | Cell::Storage(_)
                        | Cell::Tensor(_) => {
                            return Err("a key is neither a string nor a number".to_owned());
                        }
                    };
                    *budget =
                        budget.checked_sub(name.len()).ok_or("it contains itself too often")?;
                    if map.contains_key(&name) {
                        return Err(format!("`{name}` occurs twice"));
                    }
                    map.insert(name, self.item(value, depth + 1, budget)?);
                }
                Item::Map(map)
            }
            Cell::Mark | Cell::Global(_) | Cell::Storage(_) => {
                return Err("it has a name or a storage instead of a value".to_owned());
            }
        })
    }

    fn items(&self, cells: &[Cell], depth: usize, budget: &mut usize) -> Result<Item, String> {
        let items = cells.iter().map(|cell| self.item(cell, depth + 1, budget));
        Ok(Item::List(items.collect::<Result<_, String>>()?))
    }
}

fn global(module: &str, name: &str) -> Result<Global, String> {
    match (module, name) {
        ("torch._utils", "_rebuild_tensor_v2") => Ok(Global::Rebuild),
        ("torch._utils", "_rebuild_parameter") => Ok(Global::Parameter),
        ("collections", "OrderedDict") => Ok(Global::OrderedDict),
        ("torch", kind) if StorageKind::named(kind).is_some() => {
            StorageKind::named(kind).map(Global::Storage).ok_or_else(String::new)
        }
        (module, name) => Err(format!(
            "it names {:?}, which could run code and which a map of tensors does not need",
            format!("{module}.{name}")
        )),
    }
}

/// `('storage', torch.FloatStorage, '0', 'cpu', 2328)`
fn storage(id: &Cell) -> Result<Storage, String> {
    let Cell::Tuple(parts, _) = id else { return Err("a storage has no name".to_owned()) };
    match parts.as_ref() {
        [
            Cell::Text(tag),
            Cell::Global(Global::Storage(kind)),
            Cell::Text(key),
            Cell::Text(_),
            Cell::Int(count),
        ] if **tag == *"storage" => {
            let plain =
                key.len() <= 20 && !key.is_empty() && key.bytes().all(|b| b.is_ascii_digit());
            if !plain {
                return Err(format!("a storage is called {key:?}, but storages are numbered"));
            }
            let count =
                u64::try_from(*count).map_err(|_| format!("a storage of {count} values"))?;
            Ok(Storage { kind: *kind, key: key.to_string(), count })
        }
        _ => Err("a storage does not have a name as torch gives them".to_owned()),
    }
}

fn extents(cells: &[Cell]) -> Result<Vec<i64>, String> {
    if cells.len() > MAX_AXES {
        return Err(format!("a tensor of {} axes", cells.len()));
    }
    let extent = |cell: &Cell| {
        let count = if let Cell::Int(n) = cell { Some(*n).filter(|n| *n >= 0) } else { None };
        count.ok_or_else(|| "a tensor's shape or strides are not counts".to_owned())
    };
    cells.iter().map(extent).collect()
}

/// A little-endian integer in two's complement.
fn long(bytes: &[u8]) -> Result<i64, String> {
    if bytes.len() > 8 {
        return Err("an integer beyond 64 bits".to_owned());
    }
    let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
    let mut extended = [if negative { 0xff } else { 0 }; 8];
    for (to, from) in extended.iter_mut().zip(bytes) {
        *to = *from;
    }
    Ok(i64::from_le_bytes(extended))
}
