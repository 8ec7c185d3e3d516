//! Compiles committed files and texts, as the command line does. A failure names the text and its error.

use std::collections::BTreeSet;
use std::path::Path;

use compiler::program::{Compiled, Program, Std, imports};
use dsl::Diagnostics;

/// The name of the text under test.
pub const TEXT: &str = "test.canon";

pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The files of a folder with this ending, sorted, with paths from the root of the repository.
pub fn files(folder: &str, ending: &str) -> Vec<String> {
    let entries =
        std::fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let names: BTreeSet<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(ending))
        .collect();
    names.into_iter().map(|name| format!("{folder}/{name}")).collect()
}

/// All files below a folder, sorted, with paths from the root of the repository.
pub fn files_below(folder: &str) -> Vec<String> {
    let (mut open, mut all) = (vec![folder.trim_end_matches('/').to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in
            std::fs::read_dir(root().join(&folder)).unwrap_or_else(|e| panic!("{folder}: {e}"))
        {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type().unwrap().is_dir() { open.push(path) } else { all.push(path) }
        }
    }
    all.sort();
    all
}

/// A file and all its imports.
fn with_imports(name: &str, files: &mut Vec<(String, String)>) {
    // The compiler reports a missing file.
    if files.iter().all(|(known, _)| known != name) && root().join(name).exists() {
        let text = read(name);
        let next = imports(name, &text);
        files.push((name.to_owned(), text));
        next.iter().for_each(|import| with_imports(import, files));
    }
}

pub fn program(name: &str) -> Program {
    let mut files = Vec::new();
    with_imports(name, &mut files);
    Program::new(files, Std::Embedded)
}

pub fn program_of(text: &str) -> Program {
    Program::new([(TEXT.to_owned(), text.to_owned())], Std::Embedded)
}

/// The archs of a committed file.
pub fn compiled_file(name: &str) -> Vec<Compiled> {
    let program = program(name);
    program.archs(name).iter().map(|arch| compiled_in(&program, name, arch)).collect()
}

/// The arch of a committed file under `arch/` with the same name as the file.
pub fn arch(name: &str) -> Compiled {
    let file = format!("arch/{name}.canon");
    compiled_in(&program(&file), &file, name)
}

pub fn compiled_in(program: &Program, file: &str, arch: &str) -> Compiled {
    let (compiled, diagnostics) = program.compile(file, arch);
    compiled.unwrap_or_else(|| {
        let all = [program.diagnostics.as_slice(), &diagnostics].concat();
        panic!("{file}: `{arch}` does not compile\n{}", program.render(&all))
    })
}

/// The last arch of a text.
pub fn compiled(text: &str) -> Compiled {
    let program = program_of(text);
    match program.archs(TEXT).last() {
        Some(name) => compiled_in(&program, TEXT, name),
        None => panic!("no arch in\n{text}\n{}", program.render(&program.diagnostics)),
    }
}

/// All diagnostics of a text: of the program, and of each of its archs in order.
pub fn all_diagnostics(program: &Program, file: &str) -> Diagnostics {
    let mut all = program.diagnostics.clone();
    for arch in program.archs(file) {
        let (compiled, arch_diagnostics) = program.compile(file, &arch);
        let errors = arch_diagnostics.iter().any(dsl::Diagnostic::is_error) || program.has_errors();
        assert_eq!(
            compiled.is_none(),
            errors,
            "{file}: `{arch}` fails without an error, or succeeds with one"
        );
        // If the program is sound, `canonc check` reports all errors of each arch.
        all.extend(if program.has_errors() {
            program.check(file, &arch).1
        } else {
            arch_diagnostics
        });
    }
    all
}

/// The codes of a text's diagnostics.
pub fn codes(text: &str) -> Vec<&'static str> {
    all_diagnostics(&program_of(text), TEXT).iter().map(|d| d.code).collect()
}

/// An arch in one text with these layers; everything else is small and ordinary.
pub fn with_layers(definitions: &str, layers: &str) -> String {
    format!(
        "{definitions}\narch a {{\n  vocab 64\n  dim 16\n  norm_eps 1e-5\n  init lingua\n  layers {layers}\n}}\n"
    )
}
