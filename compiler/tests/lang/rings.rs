//! The order of crates and files: three rings and extensions, and no circle between files.
//!
//! A crate uses only crates of its own ring or of those inside it, and nothing but the programs uses an extension. A module
//! uses only modules listed above it in `lib.rs`, and no two files use one another; who uses a name that another module
//! brings in uses the module that defines it too. A file may use its own parent: a folder of modules is one idea.

use std::collections::{BTreeMap, BTreeSet};

use support::programs::{files_below, read};

/// Crates by ring, from the innermost. Everything below `ext/` is an extension, which only the program may use.
const RINGS: [(&str, &[&str]); 3] = [
    ("core", &["std", "dsl", "tasks", "compiler", "lab"]),
    (
        "run",
        &["disk", "data", "records", "report", "scale", "gpu", "runtime", "recipes/published/data"],
    ),
    ("app", &["cli", "cli/tensors"]),
];

/// The ring of a crate's folder, as a number from the inside.
fn ring(folder: &str) -> usize {
    let known = RINGS.iter().position(|(_, folders)| folders.contains(&folder));
    known.unwrap_or_else(|| {
        assert!(folder.starts_with("ext"), "{folder} is in no ring: add it to RINGS");
        RINGS.len()
    })
}

/// Folders of the crates of the workspace, but for those that only tests use.
pub(super) fn crates() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let members = manifest.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    let members = members.split(',').map(|member| member.trim().trim_matches('"').to_owned());
    let members = members.filter(|member| !member.is_empty() && member != "tests/support");
    let folders = members.flat_map(|member| match member.strip_suffix("/*") {
        Some(parent) => {
            let manifests = files_below(parent).into_iter();
            let folder = |path: String| path.strip_suffix("/Cargo.toml").map(str::to_owned);
            manifests.filter_map(folder).collect()
        }
        None => vec![member],
    });
    folders.collect()
}

/// The folder of each crate of the repository, by its package's name.
fn folders() -> BTreeMap<String, String> {
    let manifest = read("Cargo.toml");
    let table = manifest.split("[workspace.dependencies]").nth(1).unwrap();
    let lines = table.lines().take_while(|line| !line.starts_with('['));
    let path = |line: &str| Some(line.split_once("path = \"")?.1.split('"').next()?.to_owned());
    lines.filter_map(|line| Some((line.split_once(" = ")?.0.to_owned(), path(line)?))).collect()
}

/// Packages that a crate's manifest names under `[dependencies]`.
fn dependencies(manifest: &str) -> Vec<String> {
    let table = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let lines = table.lines().take_while(|line| !line.starts_with('['));
    lines.map(|line| line.split(['.', ' ', '=']).next().unwrap_or_default().to_owned()).collect()
}

fn climb(folder: &str, used: &str) -> String {
    format!("{folder} depends on {used}, which is further out")
}

/// Dependencies that point outwards, as sentences.
fn climbs(folder: &str, manifest: &str, folders: &BTreeMap<String, String>) -> Vec<String> {
    let used = dependencies(manifest).into_iter().filter_map(|package| folders.get(&package));
    let outward = used.filter(|used| {
        let is_extension = ring(used) == RINGS.len();
        ring(used) > ring(folder) || (is_extension && !folder.starts_with("ext"))
    });
    outward.map(|used| climb(folder, used)).collect()
}

#[test]
fn crates_use_only_their_ring_and_those_inside_it() {
    let folders = folders();
    let manifest = |folder: &str| read(&format!("{folder}/Cargo.toml"));
    let climbs =
        crates().into_iter().flat_map(|folder| climbs(&folder, &manifest(&folder), &folders));
    assert_eq!(climbs.collect::<Vec<_>>(), [] as [&str; 0]);
}

/// The path of a module below its crate, such as `["op", "rope"]`; empty for `lib.rs`.
type Module = Vec<String>;

/// A line without its comment: comments may name anything.
pub(super) fn code_of(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

/// A file without comments and without its unit tests.
fn program_of(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].lines().map(code_of).collect::<Vec<_>>().join("\n")
}

/// A module and those written inside of it between braces, with their texts.
fn inline(module: Module, text: &str) -> Vec<(Module, String)> {
    let (mut own, mut modules, mut lines) = (Vec::new(), Vec::new(), text.lines());
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["mod", name, "{"] | [_, "mod", name, "{"] = words[..] {
            let end = line.replace(line.trim_start(), "}");
            let body: Vec<&str> =
                lines.by_ref().take_while(|line| line.trim_end() != end).collect();
            let child = [module.as_slice(), &[name.to_owned()]].concat();
            modules.extend(inline(child, &body.join("\n")));
        } else {
            own.push(line);
        }
    }
    modules.push((module, own.join("\n")));
    modules
}

/// A crate's modules with their texts, without those that only tests compile.
fn modules(files: &[(String, String)]) -> BTreeMap<Module, String> {
    let module = |name: &str| -> Module {
        let path = name.trim_end_matches(".rs").split('/').filter(|part| *part != "lib");
        path.map(str::to_owned).collect()
    };
    let mut tests = BTreeSet::new();
    for (name, text) in files {
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]") {
            if let Some((_, child)) = pair[1].split_once("mod ") {
                let child = child.trim_end_matches([';', ' ', '{']).to_owned();
                tests.insert([module(name), vec![child]].concat());
            }
        }
    }
    let all = files.iter().flat_map(|(name, text)| inline(module(name), &program_of(text)));
    all.filter(|(path, _)| !tests.iter().any(|test| path.starts_with(test))).collect()
}

/// Splits a list at the commas outside of braces.
fn items(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts
}

/// What a module's text names.
#[derive(Default)]
struct Names {
    /// What `use` lines bring in: each name, or `*`, and the path that it stands for.
    imports: Vec<(String, Module)>,
    /// All other paths.
    paths: BTreeSet<Module>,
}

/// The imports of a `use` tree: `a::{b, c::d as e}` brings in `b` from `a::b` and `e` from `a::c::d`.
fn unfold(prefix: &[String], tree: &str, imports: &mut Vec<(String, Module)>) {
    for item in items(tree).into_iter().map(str::trim).filter(|item| !item.is_empty()) {
        let (head, group) = item.split_once('{').map_or((item, None), |(a, b)| (a, Some(b)));
        let (head, alias) = head.split_once(" as ").map_or((head, None), |(a, b)| (a, Some(b)));
        let words = head.split("::").map(str::trim).filter(|word| !word.is_empty());
        let mut path = [prefix, &words.map(str::to_owned).collect::<Vec<_>>()].concat();
        if let Some(group) = group {
            unfold(&path, group.trim_end().trim_end_matches('}'), imports);
            continue;
        }
        path.pop_if(|last| *last == "self");
        let name = alias.map(|alias| alias.trim().to_owned()).or(path.last().cloned());
        path.pop_if(|last| *last == "*");
        imports.extend(name.map(|name| (name, path)));
    }
}

/// What a text names. A `use` line begins a line of its own, as rustfmt writes it.
fn names(text: &str) -> Names {
    let (mut names, mut rest) = (Names::default(), String::new());
    for (number, statement) in text.split("use ").enumerate() {
        let before = rest.rsplit('\n').next().unwrap_or_default().trim();
        let begins = before.is_empty() || (before.starts_with("pub") && !before.contains(' '));
        let tree = statement.split(';').next().unwrap_or_default();
        let is_tree = |c: char| c.is_alphanumeric() || c.is_whitespace() || "_:{},*".contains(c);
        if number > 0 && begins && tree.chars().all(is_tree) {
            unfold(&[], tree, &mut names.imports);
            rest.push_str(&statement[tree.len()..]);
        } else {
            rest.push_str(statement);
        }
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for word in rest.split(|c| !is_word(c)).filter(|word| !word.starts_with(':')) {
        let parts = word.split("::").filter(|part| !part.is_empty());
        let path: Module = parts.map(str::to_owned).collect();
        if path.len() > 1 {
            names.paths.insert(path);
        }
    }
    names
}

/// The modules that a path leads to: the one it names, and the one that defines the item where the first only brings
/// it in. Names that come by `*` may be from there.
fn targets(modules: &BTreeMap<Module, Names>, from: &Module, path: &Module) -> BTreeSet<Module> {
    let (mut targets, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut open = vec![(from.clone(), path.clone())];
    while let Some((mut module, path)) = open.pop() {
        let item = path.iter().position(|word| {
            match word.as_str() {
                "crate" => module.clear(),
                "self" => {}
                "super" => drop(module.pop()),
                _ => module.push(word.clone()),
            }
            !modules.contains_key(&module)
        });
        if let Some(item) = item {
            module.pop();
            let imports = if seen.insert((module.clone(), path[item].clone())) {
                modules[&module].imports.as_slice()
            } else {
                &[]
            };
            for (name, source) in imports {
                if *name == path[item] {
                    open.push((module.clone(), [source, &path[item + 1..]].concat()));
                } else if name == "*" {
                    open.push((module.clone(), [source, &path[item..]].concat()));
                }
            }
        }
        targets.insert(module);
    }
    targets
}

/// The modules of the crate that each module uses, but for its own parents.
fn uses(modules: &BTreeMap<Module, String>) -> BTreeMap<&Module, BTreeSet<&Module>> {
    let names: BTreeMap<Module, Names> =
        modules.iter().map(|(module, text)| (module.clone(), names(text))).collect();
    let used = |module: &Module| {
        let imports = names[module].imports.iter().map(|(_, path)| path);
        let paths = imports.chain(&names[module].paths);
        let used: BTreeSet<Module> = paths.flat_map(|path| targets(&names, module, path)).collect();
        let known = modules.keys().filter(|other| used.contains(*other));
        known.filter(|other| !module.starts_with(other)).collect()
    };
    modules.keys().map(|module| (module, used(module))).collect()
}

/// Whether `from` leads to `to` by one use or more.
fn leads<'a>(
    uses: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
    from: &'a Module,
    to: &Module,
) -> bool {
    let (mut open, mut seen) = (vec![from], BTreeSet::new());
    while let Some(module) = open.pop() {
        for next in &uses[module] {
            if *next == to {
                return true;
            }
            if seen.insert(*next) {
                open.push(next);
            }
        }
    }
    false
}

/// Modules that use themselves by way of others, as paths.
fn circles(files: &[(String, String)]) -> Vec<String> {
    let modules = modules(files);
    let uses = uses(&modules);
    let circular = uses.keys().filter(|module| leads(&uses, module, module));
    circular.map(|module| module.join("/")).collect()
}

fn below(user: &str, used: &str) -> String {
    format!("{user} uses {used}, which lib.rs lists below it")
}

/// Uses of a module that `lib.rs` lists further down, as sentences.
fn out_of_order(files: &[(String, String)]) -> Vec<String> {
    let lib = files.iter().find(|(name, _)| name == "lib.rs").map(|(_, text)| text.as_str());
    let lines = lib.unwrap_or_default().lines();
    let order: Vec<&str> = lines
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "))
        .filter_map(|line| line.strip_suffix(';'))
        .collect();
    let position =
        |module: &Module| order.iter().position(|name| module.first().is_some_and(|m| m == name));
    let modules = modules(files);
    let mut sentences = Vec::new();
    for (module, used) in uses(&modules) {
        for used in used {
            if position(module).zip(position(used)).is_some_and(|(user, module)| module > user) {
                sentences.push(below(&module.join("/"), &used.join("/")));
            }
        }
    }
    sentences
}

/// The files of a crate with paths below its sources.
fn sources(folder: &str) -> Vec<(String, String)> {
    // The crates of the command line have their files beside their manifests.
    let below =
        if folder.starts_with("cli") { format!("{folder}/") } else { format!("{folder}/src/") };
    let others: &[&str] = match folder {
        "cli" => &["cli/tensors/", "cli/bin/", "cli/tests/"],
        "cli/tensors" => &["cli/tensors/tests/"],
        _ => &[],
    };
    let is_inside = |name: &String| !others.iter().any(|other| name.starts_with(other));
    let names =
        files_below(&below).into_iter().filter(|name| name.ends_with(".rs")).filter(is_inside);
    names.map(|name| (name[below.len()..].to_owned(), read(&name))).collect()
}

#[test]
fn modules_use_only_those_above_them_and_no_circle() {
    let mut faults = Vec::new();
    // The crates of texts have one file.
    let texts = ["std", "recipes/published/data"];
    for folder in crates().into_iter().filter(|folder| !texts.contains(&folder.as_str())) {
        let files = sources(&folder);
        let sentences =
            circles(&files).into_iter().map(|module| format!("{module} is in a circle"));
        let sentences = sentences.chain(out_of_order(&files));
        faults.extend(sentences.map(|sentence| format!("{folder}: {sentence}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Files of a crate that is not there.
fn files(texts: &[(&str, &str)]) -> Vec<(String, String)> {
    texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn a_planted_circle_or_climb_is_found() {
    let lib = ("lib.rs", "pub mod a;\npub mod b;\n");
    let order = files(&[lib, ("a.rs", "use crate::b::{B, C};\n"), ("b.rs", "")]);
    assert_eq!(circles(&order), [] as [&str; 0]);
    assert_eq!(out_of_order(&order), [below("a", "b")]);
    let siblings = [lib, ("a.rs", "mod x;\nmod y;\n"), ("a/x.rs", "use super::y;\n"), ("b.rs", "")];
    let circle = files(&[&siblings[..], &[("a/y.rs", "fn f() { super::x::g() }\n")]].concat());
    assert_eq!(circles(&circle), ["a/x", "a/y"]);
    let tests = "#[cfg(test)]\nmod tests {\n    use super::super::x::g;\n}\n";
    assert_eq!(circles(&files(&[&siblings[..], &[("a/y.rs", tests)]].concat())), [] as [&str; 0]);
    let parent =
        files(&[lib, ("a.rs", "mod x;\nfn f() { x::g() }\n"), ("a/x.rs", "use super::f;\n")]);
    assert_eq!(circles(&parent), [] as [&str; 0]);
    let folders: BTreeMap<String, String> = [("canonc-lab", "lab"), ("canonc-serve", "ext/serve")]
        .map(|(package, folder)| (package.to_owned(), folder.to_owned()))
        .into();
    let manifest = "[package]\n\n[dependencies]\ncanonc-lab.workspace = true\n";
    assert_eq!(climbs("runtime", manifest, &folders), [] as [&str; 0]);
    assert_eq!(climbs("dsl", manifest, &folders), [] as [&str; 0]);
    let manifest = "[package]\n\n[dependencies]\ncanonc-serve = { workspace = true }\n";
    assert_eq!(climbs("runtime", manifest, &folders).len(), 1);
    assert_eq!(climbs("ext/suite", manifest, &folders), [] as [&str; 0]);
}

#[test]
fn a_circle_or_climb_through_a_name_that_a_parent_brings_in_is_found() {
    let lib = ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::Last;\npub use b::{B as First, f};\n");
    for text in ["use crate::First;\n", "use super::{self, f};\n", "fn g() { crate::f(0) }\n"] {
        assert_eq!(out_of_order(&files(&[lib, ("a.rs", text), ("b.rs", "")])), [below("a", "b")]);
    }
    let order = files(&[lib, ("a.rs", ""), ("b.rs", "use crate::Last;\n")]);
    assert_eq!(out_of_order(&order), [] as [&str; 0]);
    // A name that goes through two modules, and one that comes with all others of its module.
    let through = [lib, ("b.rs", "pub use crate::c::*;\n"), ("c.rs", ""), ("a.rs", "mod x;\n")];
    for text in ["use super::super::f;\n", "use crate::b::g;\n"] {
        let climbs = files(&[&through[..], &[("a/x.rs", text)]].concat());
        assert_eq!(
            out_of_order(&climbs),
            [below("a/x", "b"), below("a/x", "c"), below("b", "c")],
            "{text}"
        );
    }
    let parent =
        "mod x;\nmod y;\npub use self::x::X;\npub(crate) use y::{\n    Y,\n    Z as W,\n};\n";
    let siblings =
        [lib, ("b.rs", ""), ("a.rs", parent), ("a/x.rs", "fn f(w: super::super::a::W) {}\n")];
    for text in
        ["use super::X;\n", "use crate::Last;\nuse crate::a::{self, W};\nfn f(x: a::X) {}\n"]
    {
        let circle = files(&[&siblings[..], &[("a/y.rs", text)]].concat());
        assert_eq!(circles(&circle), ["a/x", "a/y"], "{text}");
    }
    let prelude = "mod x;\nmod y;\nmod prelude {\n    pub(super) use super::y::Y;\n}\n";
    let (x, y) = (("a/x.rs", "use super::prelude::*;\n"), ("a/y.rs", "use super::x::X;\n"));
    let circle = files(&[lib, ("b.rs", ""), ("a.rs", prelude), x, y]);
    assert_eq!(circles(&circle), ["a/prelude", "a/x", "a/y"]);
    let order = files(&[&siblings[..], &[("a/y.rs", "use super::{Y, f};\n")]].concat());
    assert_eq!(circles(&order), [] as [&str; 0]);
}
