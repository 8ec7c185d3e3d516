//! An arch's weights from any kind of file: ours, Hugging Face's, Lingua's.
//!
//! In: an arch and a file or folder; or the output of import. Out: each parameter's values, in pieces. Must stay true:
//! this is the one way from a file of weights to parameters, so that import, export and every `--weights` accept the
//! same names, reorder the same rows and refuse the same files; values are copied bit for bit, or 1 is added in f32 if
//! the class does that; at most one piece is held in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use compiler::graph::Param;
use compiler::program::Compiled;

use super::ForeignError;
use super::hf::{Described, Released, Stock};
use super::lay::{self, Entry, EntryKind, LeftOut, RopePermutation, Target};
use super::model::{Mixer, Model, RopeLayout};
use super::names::{GatedNorm, LAYOUTS, LINGUA_PREFIX, Layout};
use super::store::{PIECE, Store};
use super::{arch, import, shown, torch};

/// A callback that receives values, one piece at a time.
pub type Put<'a> = &'a mut dyn FnMut(&[f32]) -> Result<(), ForeignError>;

/// Weights that hold every parameter of an arch.
#[derive(Debug)]
pub struct Source {
    /// The tensors of the file.
    pub store: Store,
    /// The foreign tensors; `None` if the names are our paths.
    entries: Option<Vec<Entry>>,
    params: Vec<Param>,
    /// The program that the file's names come from.
    pub names: &'static str,
    /// Entries of the file that are not parameters.
    pub left_out: Vec<LeftOut>,
}

/// The naming of a file.
enum Names {
    Ours,
    Theirs(&'static Layout),
}

/// The maximum number of names shown in a message.
const SHOWN: usize = 8;
/// The token table's names in older files, and its usual names.
const OLD_TABLES: [(&str, &str); 2] = [
    ("backbone.embedding.weight", "backbone.embeddings.weight"),
    ("model.embed", "model.embed.weight"),
];

impl Source {
    /// A source that import has read and described.
    pub(super) fn described(
        mut store: Store,
        described: &Described,
        whose: Target,
        params: &[Param],
        place: &Path,
    ) -> Result<Source, ForeignError> {
        let wrong = "its tensors do not match its configuration";
        let place = shown(place);
        let Released { model, norm, turned } = match described {
            Described::Released(released) => released,
            Described::Stock(stock) => return Source::stock(store, stock, params, &place, wrong),
        };
        rename(&mut store);
        let mut entries = lay::entries(model, whose, *norm, params);
        if *turned {
            lay::turn(&mut entries, model, params);
        }
        let rates = lay::rates(model);
        let left_out = lay::check(&place, &store, &entries, rates.as_deref(), wrong)?;
        let (entries, params) = (Some(entries), params.to_vec());
        Ok(Source { store, entries, params, names: lay::layout(model, whose).name, left_out })
    }

    /// The weights of a class of `transformers`.
    fn stock(
        store: Store,
        stock: &Stock,
        params: &[Param],
        place: &str,
        wrong: &str,
    ) -> Result<Source, ForeignError> {
        let entries = stock.entries(params);
        let left_out = lay::check(place, &store, &entries, Some(&stock.rates()), wrong)?;
        let (entries, params) = (Some(entries), params.to_vec());
        Ok(Source { store, entries, params, names: stock.names(), left_out })
    }

    /// Opens the weights of an arch in a file, ours or another program's, or in a folder with one.
    pub fn open(compiled: &Compiled, path: &Path) -> Result<Source, ForeignError> {
        Source::open_as(compiled, path, None)
    }

    /// Like [`Source::open`], for a caller that knows which channels RoPE pairs in the file's q and k.
    pub fn open_as(
        compiled: &Compiled,
        path: &Path,
        rows: Option<RopeLayout>,
    ) -> Result<Source, ForeignError> {
        let path = &file_of(path)?;
        let place = shown(path);
        let (mut store, _) = Store::open(path)?;
        rename(&mut store);
        let params = compiled.graph.params();
        rename_module(&mut store, params);
        let of =
            |names: &str| format!("it does not contain this arch's weights (names of {names})");
        let layout = match names(&store, params).map_err(|why| refuse(&place, &why))? {
            Names::Ours => {
                lay::check_ours(&place, &store, params, &of("canonc"))?;
                let (params, left_out) = (params.to_vec(), Vec::new());
                return Ok(Source { store, entries: None, params, names: "canonc", left_out });
            }
            Names::Theirs(layout) => layout,
        };
        if lay::HUGGING_FACE.iter().any(|known| std::ptr::eq(layout, *known))
            && let Some((config, Described::Stock(stock))) =
                import::described_beside(path, Target::HuggingFace)?
        {
            agree_stock(&config, &stock, compiled, rows)?;
            return Source::stock(store, &stock, params, &place, &of(layout.name));
        }
        let model = arch::model(compiled).map_err(|error| {
            let why = format!(
                "it uses the names of {}, which are supported only for the released families and with the \
                 `config.json` of the model beside it, but {}",
                layout.name, error.message
            );
            ForeignError::new(place.clone(), why, "use weights with the paths that `canonc show` lists")
        })?;
        let prefixed = store.tensors.keys().any(|name| name.contains(LINGUA_PREFIX));
        let lingua = std::ptr::eq(layout, lay::layout(&model, Target::Lingua));
        let both = std::ptr::eq(layout, lay::layout(&model, Target::HuggingFace));
        let whose =
            if lingua && (prefixed || !both) { Target::Lingua } else { Target::HuggingFace };
        let reference = store.tensors.keys().any(|name| name.ends_with(".attn.g_norm.weight"));
        let norm = if reference { GatedNorm::Reference } else { GatedNorm::Fused };
        let mut entries = lay::entries(&model, whose, norm, params);
        let beside = match import::described_beside(path, whose)? {
            Some((config, Described::Released(released))) => {
                agree(&config, &released.model, &model, &compiled.name)?;
                Some(released)
            }
            Some((_, Described::Stock(_))) | None => None,
        };
        if let Mixer::Attention(attention) = &model.mixer
            && rows.unwrap_or_else(|| rope_rows(&model, whose, beside.as_ref())) != attention.layout
        {
            lay::turn(&mut entries, &model, params);
        }
        let rates = lay::rates(&model);
        let left_out = lay::check(&place, &store, &entries, rates.as_deref(), &of(layout.name))?;
        let params = params.to_vec();
        Ok(Source { store, entries: Some(entries), params, names: layout.name, left_out })
    }

    /// Whether rows of q and k are reordered for RoPE.
    pub fn is_turned(&self) -> bool {
        self.entries.iter().flatten().any(|entry| entry.turned.is_some())
    }

    /// Passes one parameter to `put`, in pieces.
    pub fn param(&self, index: usize, put: Put<'_>) -> Result<(), ForeignError> {
        let Some(param) = self.params.get(index) else { return Ok(()) };
        self.range(index, 0, lay::rows(param) * lay::width(param), put)
    }

    /// Passes values `start..start + count` of a parameter to `put`, in pieces.
    fn range(
        &self,
        index: usize,
        start: u64,
        count: u64,
        put: Put<'_>,
    ) -> Result<(), ForeignError> {
        let Some(param) = self.params.get(index) else { return Ok(()) };
        let width = lay::width(param).max(1);
        let Some(entries) = &self.entries else {
            return pieces(count, |at, count| {
                put(&self.store.values(&param.path, start + at, count)?)
            });
        };
        let holds = |e: &&Entry| e.kind == EntryKind::Needed && e.ours.contains(&index);
        let Some(entry) = entries.iter().find(holds) else {
            let message = format!("`{}` is not in any tensor of that layout", param.path);
            return Err(ForeignError::new("", message, "this is a bug in canonc"));
        };
        let before =
            entry.ours.iter().take_while(|n| **n != index).filter_map(|n| self.params.get(*n));
        let first: u64 = before.map(lay::rows).sum();
        match entry.turned {
            None => pieces(count, |at, count| {
                let at = first * width + start + at;
                let mut values = self.store.values(&entry.theirs, at, count)?;
                if entry.plus_one {
                    values.iter_mut().for_each(|value| *value += 1.0);
                }
                put(&values)
            }),
            // Reordered tensors hold one parameter each, so the rows of both are the same.
            Some(turned) => by_rows(start, count, width, put, |row, put| {
                let theirs = first + lay::their_row(row, turned);
                put(&self.store.values(&entry.theirs, theirs * width, width)?)
            }),
        }
    }

    /// Passes one tensor of another program, made of these weights, to `put`, in pieces. A norm less 1 gives our value
    /// back in f32, except that values between 0 and 1/2 and below 0 may be off by half a unit in the last place of 1: no
    /// f32 gives those back.
    pub fn theirs(&self, entry: &Entry, put: Put<'_>) -> Result<(), ForeignError> {
        if entry.kind == EntryKind::Zeros {
            let total = entry.shape.iter().map(|n| (*n).max(0) as u64).product();
            return pieces(total, |_, count| put(&vec![0.0; count as usize]));
        }
        for index in &entry.ours {
            let Some(param) = self.params.get(*index) else { continue };
            let width = lay::width(param).max(1);
            match entry.turned {
                None if entry.plus_one => {
                    self.param(*index, &mut |values| {
                        put(&values.iter().map(|value| value - 1.0).collect::<Vec<f32>>())
                    })?;
                }
                None => self.param(*index, put)?,
                Some(turned) => self.turned(*index, width, turned, put)?,
            }
        }
        Ok(())
    }

    fn turned(
        &self,
        index: usize,
        width: u64,
        turned: RopePermutation,
        put: Put<'_>,
    ) -> Result<(), ForeignError> {
        let Some(param) = self.params.get(index) else { return Ok(()) };
        by_rows(0, lay::rows(param) * width, width, put, |row, put| {
            self.range(index, lay::our_row(row, turned) * width, width, put)
        })
    }
}

/// Calls `each` with the place and length of consecutive pieces of `count` values.
fn pieces(
    count: u64,
    mut each: impl FnMut(u64, u64) -> Result<(), ForeignError>,
) -> Result<(), ForeignError> {
    let mut at = 0;
    while at < count {
        let piece = PIECE.min(count - at);
        each(at, piece)?;
        at += piece;
    }
    Ok(())
}

/// Reads whole rows one by one and gathers them into pieces.
fn by_rows(
    start: u64,
    count: u64,
    width: u64,
    put: Put<'_>,
    mut read: impl FnMut(u64, Put<'_>) -> Result<(), ForeignError>,
) -> Result<(), ForeignError> {
    let mut gathered = Vec::new();
    for row in start / width..(start + count) / width {
        read(row, &mut |values| {
            gathered.extend_from_slice(values);
            Ok(())
        })?;
        if gathered.len() as u64 + width > PIECE {
            put(&gathered)?;
            gathered.clear();
        }
    }
    if gathered.is_empty() { Ok(()) } else { put(&gathered) }
}

fn rename(store: &mut Store) {
    let tables = OLD_TABLES.into_iter().flat_map(|table| ["", LINGUA_PREFIX].map(|p| (p, table)));
    for (prefix, (old, new)) in tables {
        let new = format!("{prefix}{new}");
        if !store.tensors.contains_key(&new)
            && let Some(stored) = store.tensors.remove(&format!("{prefix}{old}"))
        {
            store.tensors.insert(new, stored);
        }
    }
}

/// Gives the tensors of an exported PyTorch module our names. Other files stay as they are.
fn rename_module(store: &mut Store, params: &[Param]) {
    let foreign = |name: &String| {
        let row = lay::of_any_layer(name);
        LAYOUTS.iter().any(|layout| layout.rows.iter().any(|known| known.theirs == row))
    };
    let all = torch::tensor_names(params);
    let count = |prefix: &str| {
        all.iter().filter(|name| store.tensors.contains_key(&format!("{prefix}{name}"))).count()
    };
    let ours = params.iter().filter(|param| store.tensors.contains_key(&param.path)).count();
    let prefixes = ["", torch::CLASSES.prefix];
    let (Some(prefix), most) = prefixes
        .into_iter()
        .map(|prefix| (Some(prefix), count(prefix)))
        .fold((None, ours), |best, found| if found.1 > best.1 { found } else { best })
    else {
        return;
    };
    // Rename some of the tensors, too, so that the checks can list the missing ones by path; but another program's
    // file may happen to have some of these names.
    if most < all.len() && store.tensors.keys().any(foreign) {
        return;
    }
    let taken: Vec<_> =
        all.iter().map(|name| store.tensors.remove(&format!("{prefix}{name}"))).collect();
    let found = params.iter().zip(taken);
    store.tensors.extend(found.filter_map(|(param, stored)| Some((param.path.clone(), stored?))));
}

fn refuse(place: &str, why: &str) -> ForeignError {
    let help = "use weights with one program's names, or with the paths that `canonc show` lists";
    ForeignError::new(place, format!("it does not contain this arch's weights: {why}"), help)
}

/// The naming of a file: all names are ours, or all are from one layout. The checks find unknown names.
fn names(store: &Store, params: &[Param]) -> Result<Names, String> {
    let paths: BTreeSet<&str> = params.iter().map(|p| p.path.as_str()).collect();
    let mut ours = Vec::new();
    let mut theirs: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for name in store.tensors.keys() {
        if paths.contains(name.as_str()) {
            ours.push(name.as_str());
        }
        let row = lay::of_any_layer(name);
        for (index, layout) in LAYOUTS.iter().enumerate() {
            if layout.rows.iter().any(|known| known.theirs == row) {
                theirs.entry(index).or_default().push(name);
            }
        }
    }
    let list = |names: &[&str]| {
        let shown: Vec<&str> = names.iter().take(SHOWN).copied().collect();
        let more = if names.len() > SHOWN { ", …" } else { "" };
        format!("{}{more}", shown.join(", "))
    };
    let most = theirs.iter().max_by_key(|(index, names)| (names.len(), usize::MAX - **index));
    let most = most.and_then(|(index, names)| Some((*LAYOUTS.get(*index)?, names)));
    match (ours.as_slice(), most) {
        ([], Some((layout, _))) => Ok(Names::Theirs(layout)),
        (_, None) if !ours.is_empty() => Ok(Names::Ours),
        ([], None) => {
            let all: Vec<&str> = store.tensors.keys().map(String::as_str).collect();
            match all.as_slice() {
                [] => Err("it is empty".to_owned()),
                all => Err(format!("its names belong to no supported program: {}", list(all))),
            }
        }
        (ours, Some((layout, names))) => Err(format!(
            "it mixes the names of canonc ({}) with those of {} ({})",
            list(ours),
            layout.name,
            list(names)
        )),
        (_, None) => Ok(Names::Ours),
    }
}

/// Which channels RoPE pairs in the rows of a file's q and k.
fn rope_rows(model: &Model, whose: Target, beside: Option<&Released>) -> RopeLayout {
    let own = |model: &Model| match &model.mixer {
        Mixer::Attention(attention) => attention.layout,
        Mixer::Gla5 { .. } | Mixer::Gdn2 { .. } | Mixer::Mamba2 { .. } => RopeLayout::Half,
    };
    match (whose, beside) {
        (Target::Lingua, _) => RopeLayout::Interleaved,
        (Target::HuggingFace, Some(Released { model, turned: true, .. })) => match own(model) {
            RopeLayout::Half => RopeLayout::Interleaved,
            RopeLayout::Interleaved => RopeLayout::Half,
        },
        (Target::HuggingFace, Some(described)) => own(&described.model),
        // Stock `transformers` has one RoPE layout; the published class uses the layout of the model's training.
        (Target::HuggingFace, None) if model.is_plain_llama() => RopeLayout::Half,
        (Target::HuggingFace, None) => own(model),
    }
}

/// Refuses weights if the configuration in their folder describes another model than the arch.
fn agree(config: &Path, theirs: &Model, ours: &Model, name: &str) -> Result<(), ForeignError> {
    let Some((has, wants)) = differing(theirs, ours) else { return Ok(()) };
    let message = format!("it says `{has}`, but the arch `{name}` has `{wants}`");
    let help = "name the arch of these weights, or `canonc import` the folder";
    Err(ForeignError::new(shown(config), message, help))
}

/// Refuses an arch that is not the model which the configuration of a class of `transformers` describes.
fn agree_stock(
    config: &Path,
    stock: &Stock,
    compiled: &Compiled,
    rows: Option<RopeLayout>,
) -> Result<(), ForeignError> {
    let name = &compiled.name;
    let refuse = |message: String, help: &str| Err(ForeignError::new(shown(config), message, help));
    if rows == Some(RopeLayout::Interleaved) {
        return refuse(
            "its rows are for the half layout of RoPE".to_owned(),
            "leave the layout out",
        );
    }
    let Some((path, ours, theirs)) = stock.difference(compiled)? else { return Ok(()) };
    let message = format!("it makes `{path}` {theirs}, but the arch `{name}` has {ours}");
    refuse(message, "name the arch of these weights, or `canonc import` the folder")
}

/// The first difference of two models, apart from initial distributions and the channels that RoPE pairs.
pub(super) fn differing(one: &Model, other: &Model) -> Option<(String, String)> {
    let mut one = Model { init: other.init.clone(), ..one.clone() };
    if let (Mixer::Attention(a), Mixer::Attention(b)) = (&mut one.mixer, &other.mixer) {
        a.layout = b.layout;
    }
    if one == *other {
        return None;
    }
    let lines = |model: &Model| {
        let text = model.text("model", "");
        text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    let (one, other) = (lines(&one), lines(other));
    let alone = |these: &[String], those: &[String]| {
        these.iter().filter(|line| !those.contains(line)).cloned().collect::<Vec<_>>()
    };
    let (one, other) = (alone(&one, &other), alone(&other, &one));
    let field = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let of = |lines: &[String], wanted: &str| {
        let line = lines.iter().find(|line| field(line) == wanted);
        line.cloned().unwrap_or_else(|| format!("no {wanted}"))
    };
    let first = one.first().or(other.first()).map(|line| field(line)).unwrap_or_default();
    Some((of(&one, &first), of(&other, &first)))
}

/// The file of weights in a folder, or the path itself if it is a file.
pub fn file_of(path: &Path) -> Result<PathBuf, ForeignError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let names = import::WEIGHTS;
    match names.iter().map(|name| path.join(name)).find(|file| file.is_file()) {
        Some(file) => Ok(file),
        None => {
            let there = import::like_weights(path);
            let there = match there.is_empty() {
                true => String::new(),
                false => format!("; it has {}", there.join(", ")),
            };
            let message = format!(
                "this folder contains no weights: it has no {}{there}",
                names.join(", no ")
            );
            Err(ForeignError::new(shown(path), message, "name a file of weights, or its folder"))
        }
    }
}
