//! An arch's weights from any kind of file: ours, Hugging Face's, Lingua's.
//!
//! This is the one way from a file of weights to parameters, so import, export and every `--weights` accept the same
//! names, reorder the same rows and refuse the same files. Values are copied bit for bit, or 1 is added in f32 if the
//! class does that; at most one piece is in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use compiler::graph::Param;
use compiler::program::Compiled;
use dsl::Problem;

use records::model_folder::{CONFIG, PARAMS};
use records::weights::WeightSource;

use super::class::{CLASSES, layouts};
use super::config::Keys;
use super::described::Described;
use super::folder;
use super::lay::{self, EntryKind, RopePermutation, Target, TensorEntry};
use super::model::{Mixer, Model, RopeLayout};
use super::names::{GatedNorm, LINGUA_PREFIX, Layout};
use super::store::{PIECE, Store, bytes_of};
use super::{LeftOut, arch, hf, json, lingua, shown, torch};

/// A callback that receives values, one piece at a time.
pub type Put<'a> = &'a mut dyn FnMut(&[f32]) -> Result<(), Problem>;

/// Weights that hold every parameter of an arch.
#[derive(Debug)]
pub struct ArchWeights {
    /// The tensors of the file.
    pub store: Store,
    /// The foreign tensors; `None` if the names are our paths.
    entries: Option<Vec<TensorEntry>>,
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

impl ArchWeights {
    /// A source that import has read and described.
    pub(super) fn described(
        mut store: Store,
        described: &Described,
        whose: Target,
        params: &[Param],
        path: &Path,
    ) -> Result<ArchWeights, Problem> {
        rename(&mut store);
        let wrong = "its tensors do not match its configuration";
        ArchWeights::checked(store, described, whose, params, &shown(path), wrong)
    }

    /// The tensors of a model, compared with those that it should have.
    fn checked(
        store: Store,
        described: &Described,
        whose: Target,
        params: &[Param],
        file: &str,
        wrong: &str,
    ) -> Result<ArchWeights, Problem> {
        let entries = described.entries(whose, params);
        let rates = described.rates();
        let left_out = lay::check(file, &store, &entries, rates.as_deref(), wrong)?;
        let names = described.names(whose).name;
        Ok(ArchWeights { store, entries: Some(entries), params: params.to_vec(), names, left_out })
    }

    /// Opens the weights of an arch in a file, ours or another program's, or in a folder with one.
    pub fn open(compiled: &Compiled, path: &Path) -> Result<ArchWeights, Problem> {
        ArchWeights::open_as(compiled, path, None)
    }

    /// Like [`ArchWeights::open`], for a caller that knows which channels RoPE pairs in the file's q and k.
    pub fn open_as(
        compiled: &Compiled,
        path: &Path,
        rows: Option<RopeLayout>,
    ) -> Result<ArchWeights, Problem> {
        let path = &file_of(path)?;
        let params = compiled.graph.params();
        let (file, store) = named_store(path, params)?;
        let wrong =
            |names: &str| format!("it does not contain this arch's weights (names of {names})");
        let layout = match names(&store, params).map_err(|reason| refuse(&file, &reason))? {
            Names::Ours => {
                lay::check_ours(&file, &store, params, &wrong("canonc"))?;
                let (params, left_out) = (params.to_vec(), Vec::new());
                return Ok(ArchWeights { store, entries: None, params, names: "canonc", left_out });
            }
            Names::Theirs(layout) => layout,
        };
        let in_transformers =
            CLASSES.iter().any(|class| class.code.is_none() && std::ptr::eq(layout, class.names));
        if in_transformers
            && let Some((config, described)) = described_beside(path, Target::HuggingFace)?
            && !described.is_released()
        {
            agree_exactly(&config, &described, compiled, rows)?;
            let whose = Target::HuggingFace;
            let wrong = wrong(layout.name);
            return ArchWeights::checked(store, &described, whose, params, &file, &wrong);
        }
        let (described, whose) = released(compiled, path, &store, layout, rows)?;
        ArchWeights::checked(store, &described, whose, params, &file, &wrong(layout.name))
    }

    /// Whether rows of q and k are reordered for RoPE.
    pub fn is_turned(&self) -> bool {
        self.entries.iter().flatten().any(|entry| entry.turned.is_some())
    }

    /// Passes one parameter to `put`, in pieces.
    pub fn param(&self, index: usize, put: Put<'_>) -> Result<(), Problem> {
        let Some(param) = self.params.get(index) else { return Ok(()) };
        self.range(index, 0, lay::rows(param) * lay::width(param), put)
    }

    /// Passes values `start..start + count` of a parameter to `put`, in pieces.
    fn range(&self, index: usize, start: u64, count: u64, put: Put<'_>) -> Result<(), Problem> {
        let Some(param) = self.params.get(index) else { return Ok(()) };
        let width = lay::width(param).max(1);
        let Some(entries) = &self.entries else {
            return pieces(count, |at, count| {
                put(&self.store.values(&param.path, start + at, count)?)
            });
        };
        let holds = |e: &&TensorEntry| e.kind == EntryKind::Needed && e.ours.contains(&index);
        let Some(entry) = entries.iter().find(holds) else {
            let message = format!("`{}` is not in any tensor of that layout", param.path);
            return Err(Problem::in_file("", message, "this is a bug in canonc"));
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
    pub fn theirs(&self, entry: &TensorEntry, put: Put<'_>) -> Result<(), Problem> {
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
    ) -> Result<(), Problem> {
        let Some(param) = self.params.get(index) else { return Ok(()) };
        by_rows(0, lay::rows(param) * width, width, put, |row, put| {
            self.range(index, lay::our_row(row, turned) * width, width, put)
        })
    }
}

impl WeightSource for ArchWeights {
    fn param(&self, index: usize, put: &mut dyn FnMut(&[f32])) -> Result<(), Problem> {
        ArchWeights::param(self, index, &mut |values| {
            put(values);
            Ok(())
        })
        .map_err(as_sentence)
    }
}

/// The file's name in messages, and its tensors without what wrappers and generated modules add to their names.
fn named_store(path: &Path, params: &[Param]) -> Result<(String, Store), Problem> {
    let (mut store, _) = Store::open(path)?;
    rename(&mut store);
    rename_module(&mut store, params);
    Ok((shown(path), store))
}

/// Weights of some of an arch's parameters, and of nothing else.
#[derive(Debug)]
pub struct PartialWeights {
    weights: ArchWeights,
    /// By parameter of the arch, its number in the weights.
    numbers: Vec<Option<usize>>,
}

impl PartialWeights {
    /// Opens a file under our paths; `None` if its names are another program's.
    pub fn open(compiled: &Compiled, path: &Path) -> Result<Option<PartialWeights>, Problem> {
        let params = compiled.graph.params();
        let (file, store) = named_store(&file_of(path)?, params)?;
        match names(&store, params).map_err(|reason| refuse(&file, &reason))? {
            Names::Theirs(_) => return Ok(None),
            Names::Ours => {}
        }
        let held: Vec<Param> = params
            .iter()
            .filter(|param| store.tensors.contains_key(&param.path))
            .cloned()
            .collect();
        lay::check_ours(&file, &store, &held, "it contains more than this arch's weights")?;
        let (entries, names, left_out) = (None, "canonc", Vec::new());
        let weights = ArchWeights { store, entries, params: held, names, left_out };
        PartialWeights::of_model(weights, compiled, path).map(Some)
    }

    /// The weights of a model whose parameters are among those of an arch, under the same paths.
    pub fn of_model(
        weights: ArchWeights,
        compiled: &Compiled,
        path: &Path,
    ) -> Result<PartialWeights, Problem> {
        let params = compiled.graph.params();
        let known: BTreeMap<&str, (usize, &Param)> = params
            .iter()
            .enumerate()
            .map(|(number, param)| (param.path.as_str(), (number, param)))
            .collect();
        let (mut numbers, mut faults) = (vec![None; params.len()], Vec::new());
        for (held, param) in weights.params.iter().enumerate() {
            let shape = &param.shape;
            match known.get(param.path.as_str()) {
                Some((number, ours)) if ours.shape == *shape => {
                    if let Some(known) = numbers.get_mut(*number) {
                        *known = Some(held);
                    }
                }
                Some((_, ours)) => faults.push(format!(
                    "shape: {} is {shape:?}, but the arch needs {:?}",
                    param.path, ours.shape
                )),
                None => faults.push(format!("extra: {} {shape:?}", param.path)),
            }
        }
        match faults.is_empty() {
            true => Ok(PartialWeights { weights, numbers }),
            false => {
                let message = "it contains other weights than this arch's";
                Err(lay::refused(&shown(path), message, faults))
            }
        }
    }
}

impl WeightSource for PartialWeights {
    fn param(&self, index: usize, put: &mut dyn FnMut(&[f32])) -> Result<(), Problem> {
        match self.numbers.get(index).copied().flatten() {
            Some(held) => WeightSource::param(&self.weights, held, put),
            None => Ok(()),
        }
    }

    fn has(&self, index: usize) -> bool {
        self.numbers.get(index).copied().flatten().is_some()
    }
}

/// A problem of a file as one sentence, for commands and runs that have other places of their own.
pub fn as_sentence(problem: Problem) -> Problem {
    let message = match (&problem.place, problem.message.strip_prefix("it ")) {
        (Some(place), Some(rest)) => format!("{place} {rest}"),
        (Some(_), None) | (None, _) => problem.located(),
    };
    Problem { message, place: None, ..problem }
}

/// Calls `each` with the place and length of consecutive pieces of `count` values.
fn pieces(
    count: u64,
    mut each: impl FnMut(u64, u64) -> Result<(), Problem>,
) -> Result<(), Problem> {
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
    mut read: impl FnMut(u64, Put<'_>) -> Result<(), Problem>,
) -> Result<(), Problem> {
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

/// An arch of a released family with the rows of a file under this layout's names, and the program that wrote it.
fn released(
    compiled: &Compiled,
    path: &Path,
    store: &Store,
    layout: &Layout,
    rows: Option<RopeLayout>,
) -> Result<(Described, Target), Problem> {
    let model = arch::model(compiled).map_err(|error| {
        let message = format!(
            "it uses the names of {}, which are supported only for the released families and with the \
             `config.json` of the model beside it, but {}",
            layout.name, error.message
        );
        Problem::in_file(shown(path), message, "use weights with the paths that `canonc show` lists")
    })?;
    let reference = store.tensors.keys().any(|name| name.ends_with(".attn.g_norm.weight"));
    let norm = if reference { GatedNorm::Reference } else { GatedNorm::Fused };
    let mut described = Described::of_released(model, norm);
    let whose = program(store, layout, &described);
    let beside = match described_beside(path, whose)? {
        Some((config, theirs)) if theirs.is_released() => {
            agree(&config, &theirs.model, &described.model, &compiled.name)?;
            Some(theirs)
        }
        Some(_) | None => None,
    };
    if let Some(attention) = described.model.attention() {
        let rows = rows.unwrap_or_else(|| rope_rows(&described, whose, beside.as_ref()));
        described.turned = rows != attention.layout;
    }
    Ok((described, whose))
}

/// The program that wrote a file under this layout's names.
fn program(store: &Store, layout: &Layout, described: &Described) -> Target {
    let prefixed = store.tensors.keys().any(|name| name.contains(LINGUA_PREFIX));
    let is = |target| std::ptr::eq(layout, described.names(target));
    match is(Target::Lingua) && (prefixed || !is(Target::HuggingFace)) {
        true => Target::Lingua,
        false => Target::HuggingFace,
    }
}

/// The model that a configuration in the same folder as a file of weights describes, if there is one. For weights that
/// are used directly, without an import.
fn described_beside(
    weights: &Path,
    whose: Target,
) -> Result<Option<(PathBuf, Described)>, Problem> {
    let name = match whose {
        Target::HuggingFace => CONFIG,
        Target::Lingua => PARAMS,
    };
    let folder = weights.parent().unwrap_or(Path::new(""));
    let Some(path) = folder::file(folder.join(name)) else { return Ok(None) };
    let file = shown(&path);
    let root = json::read(&file, &bytes_of(&path)?.0)?;
    let keys = Keys::new(&file, &root)?;
    let described = match whose {
        Target::HuggingFace => hf::read(&keys)?,
        Target::Lingua => lingua::read(&keys)?,
    };
    Ok(Some((path, described)))
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
    let layouts = layouts();
    let foreign = |name: &String| {
        let row = lay::of_any_layer(name);
        layouts.iter().any(|layout| layout.has(&row))
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
        .fold((None, ours), |best, counted| if counted.1 > best.1 { counted } else { best })
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
    let named = params.iter().zip(taken);
    store.tensors.extend(named.filter_map(|(param, stored)| Some((param.path.clone(), stored?))));
}

fn refuse(file: &str, reason: &str) -> Problem {
    let help = "use weights with one program's names, or with the paths that `canonc show` lists";
    Problem::in_file(file, format!("it does not contain this arch's weights: {reason}"), help)
}

/// The naming of a file: all names are ours, or all are from one layout. The checks find unknown names.
fn names(store: &Store, params: &[Param]) -> Result<Names, String> {
    let paths: BTreeSet<&str> = params.iter().map(|p| p.path.as_str()).collect();
    let layouts = layouts();
    let mut ours = Vec::new();
    let mut theirs: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for name in store.tensors.keys() {
        if paths.contains(name.as_str()) {
            ours.push(name.as_str());
        }
        let row = lay::of_any_layer(name);
        for (index, layout) in layouts.iter().enumerate() {
            if layout.has(&row) {
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
    let most = most.and_then(|(index, names)| Some((*layouts.get(*index)?, names)));
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
fn rope_rows(ours: &Described, whose: Target, beside: Option<&Described>) -> RopeLayout {
    let layout = |described: &Described| {
        described.model.attention().map_or(RopeLayout::Half, |attention| attention.layout)
    };
    match (whose, beside) {
        (Target::Lingua, _) => RopeLayout::Interleaved,
        (Target::HuggingFace, Some(theirs)) if theirs.turned => match layout(theirs) {
            RopeLayout::Half => RopeLayout::Interleaved,
            RopeLayout::Interleaved => RopeLayout::Half,
        },
        (Target::HuggingFace, Some(theirs)) => layout(theirs),
        // Stock `transformers` has one RoPE layout; the published class uses the layout of the model's training.
        (Target::HuggingFace, None) if ours.class.code.is_none() => RopeLayout::Half,
        (Target::HuggingFace, None) => layout(ours),
    }
}

/// Refuses weights if the configuration in their folder describes another model than the arch.
fn agree(config: &Path, theirs: &Model, ours: &Model, name: &str) -> Result<(), Problem> {
    let Some((has, wants)) = differing(theirs, ours) else { return Ok(()) };
    let message = format!("it says `{has}`, but the arch `{name}` has `{wants}`");
    let help = "name the arch of these weights, or `canonc import` the folder";
    Err(Problem::in_file(shown(config), message, help))
}

/// Refuses an arch that is not the model of a class which is not the release's.
fn agree_exactly(
    config: &Path,
    described: &Described,
    compiled: &Compiled,
    rows: Option<RopeLayout>,
) -> Result<(), Problem> {
    let name = &compiled.name;
    let refuse = |message: String, help: &str| Err(Problem::in_file(shown(config), message, help));
    if rows == Some(RopeLayout::Interleaved) {
        return refuse(
            "its rows are for the half layout of RoPE".to_owned(),
            "leave the layout out",
        );
    }
    let Some((path, ours, theirs)) = described.difference(compiled)? else { return Ok(()) };
    let message = format!("it makes `{path}` {theirs}, but the arch `{name}` has {ours}");
    refuse(message, "name the arch of these weights, or `canonc import` the folder")
}

/// The first difference of two models, apart from initial distributions and the channels that RoPE pairs.
pub(super) fn differing(left: &Model, right: &Model) -> Option<(String, String)> {
    let mut left = Model { init: right.init.clone(), ..left.clone() };
    if let (Mixer::Attention(a), Mixer::Attention(b)) = (&mut left.mixer, &right.mixer) {
        a.layout = b.layout;
    }
    if left == *right {
        return None;
    }
    let lines = |model: &Model| {
        let text = model.text("model", "");
        text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    let (left, right) = (lines(&left), lines(right));
    let alone = |these: &[String], those: &[String]| {
        these.iter().filter(|line| !those.contains(line)).cloned().collect::<Vec<_>>()
    };
    let (left, right) = (alone(&left, &right), alone(&right, &left));
    let field = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let line_of = |lines: &[String], wanted: &str| {
        let line = lines.iter().find(|line| field(line) == wanted);
        line.cloned().unwrap_or_else(|| format!("no {wanted}"))
    };
    let first = left.first().or(right.first()).map(|line| field(line)).unwrap_or_default();
    Some((line_of(&left, &first), line_of(&right, &first)))
}

/// The file of weights in a folder, or the path itself if it is a file.
pub fn file_of(path: &Path) -> Result<PathBuf, Problem> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let names = folder::WEIGHTS;
    match names.iter().map(|name| path.join(name)).find(|file| file.is_file()) {
        Some(file) => Ok(file),
        None => {
            let names = names.join(", no ");
            let message = match folder::like_weights(path).as_slice() {
                [] => format!("this folder contains no weights: it has no {names}"),
                like => format!(
                    "this folder contains no weights: it has no {names}; it has {}",
                    like.join(", ")
                ),
            };
            Err(Problem::in_file(shown(path), message, "name a file of weights, or its folder"))
        }
    }
}
