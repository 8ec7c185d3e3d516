//! No input costs more than 256 MB, and every input ends: texts made to hurt the passes after the parser, each compiled
//! by a child process with an allocator that refuses more than the limit.

use std::fmt::Write as _;
use std::process::Command;

use compiler::elaborate::{
    MAX_DEPTH, MAX_ELEMENTS, MAX_EVALUATIONS, MAX_FIELDS, MAX_NODES, MAX_PATHS, MAX_STEPS,
    MAX_TENSORS, MAX_TOTAL, MAX_WIDTH,
};
use compiler::tree::{MAX_CHAIN, MAX_CONFIG, MAX_LAYERS};
use support::programs::{TEXT, all_diagnostics, program_of, read, with_layers};

pub(crate) const MEMORY: usize = 256 << 20;
/// Hundredths of a second of processor time after which a text counts as endless. This is a hundred times the worst
/// case: work that is quadratic in the text exceeds it, a busy machine does not.
pub(crate) const TIME: u64 = 6000;

pub(crate) const LAYER: &str = "decoder { mixer attention { heads 4 }  mlp swiglu { hidden 8 } }";

/// `write(i)` for each number below `n`, joined.
fn repeat(n: usize, mut write: impl FnMut(usize) -> String) -> String {
    (0..n).map(&mut write).collect()
}

/// A name of the maximum length.
fn long(i: usize) -> String {
    format!("{}{i:03}", "n".repeat(dsl::limits::MAX_NAME_BYTES - 3))
}

/// Name, text, and the codes of the expected diagnostics; with none, the text compiles.
type HostileText = (&'static str, String, &'static [&'static str]);

fn hostile() -> impl Iterator<Item = HostileText> {
    let groups = [
        many_layers,
        chains_of_definitions,
        large_bodies,
        long_expressions_and_names,
        wrong_settings,
    ];
    groups.into_iter().flat_map(|group| group())
}

fn arch(definitions: String, layers: &str) -> String {
    with_layers(&definitions, layers)
}

fn many_layers() -> Vec<HostileText> {
    vec![
        ("ten thousand equal layers", arch(String::new(), &format!("10_000 of {LAYER}")), &[]),
        (
            "ten thousand with slots",
            arch(
                String::new(),
                &format!("10_000 of {}", LAYER.replace(" }  mlp", " }  canon A, B, C, D  mlp")),
            ),
            &[],
        ),
        (
            "ten thousand shared",
            arch(String::new(), &format!("5_000 of [share {LAYER}, {LAYER}]")),
            &[],
        ),
        (
            "ten thousand by their number",
            arch(
                String::new(),
                &format!("10_000 of {}", LAYER.replace("heads 4", "heads 4, window layer + 1")),
            ),
            &["too-many-steps"],
        ),
        (
            "a thousand by their number",
            arch(
                String::new(),
                &format!("1_000 of {}", LAYER.replace("heads 4", "heads 4, window layer + 1")),
            ),
            &[],
        ),
        (
            "thousands written out",
            arch(
                String::new(),
                &format!(
                    "[{}]",
                    repeat(6000, |i| format!(
                        "decoder {{ mixer attention {{ heads 4, window {} }}  mlp swiglu }},\n",
                        i + 1
                    ))
                ),
            ),
            &["too-many-steps"],
        ),
        (
            "hundreds of edits",
            format!(
                "{}arch b = a with {{\n{}}}",
                arch(String::new(), &format!("5_000 of {LAYER}")),
                repeat(500, |i| format!("layers[{}].mixer.window {}\n", 9 * i, i + 1))
            ),
            &[],
        ),
        (
            "thousands of edits",
            format!(
                "{}arch b = a with {{\n{}}}",
                arch(String::new(), &format!("4_000 of {LAYER}")),
                repeat(4_000, |i| format!("layers[{i}].mixer.window {}\n", i + 1))
            ),
            &["too-many-steps"],
        ),
        (
            "edits of all layers",
            format!(
                "{}arch b = a with {{\n{}}}",
                arch(String::new(), &format!("10_000 of {LAYER}")),
                repeat(40_000, |i| format!("mixer.window {}\n", i + 1))
            ),
            &["too-many-edits", "edited-twice"],
        ),
    ]
}

fn chains_of_definitions() -> Vec<HostileText> {
    vec![
        (
            "calls that double",
            arch(
                repeat(31, |i| format!("block b{i}(x) {{ b{j}(b{j}(x)) }}\n", j = i + 1))
                    + "block b31(x) { x }",
                "2 of b0",
            ),
            &["too-many-steps"],
        ),
        (
            "calls that double, with nodes",
            arch(
                repeat(28, |i| format!("block b{i}(x) {{ b{j}(b{j}(x)) }}\n", j = i + 1))
                    + "block b28(x) { silu(x) }",
                "2 of b0",
            ),
            &["too-many-steps"],
        ),
        (
            "calls that double, with parameters",
            arch(
                repeat(20, |i| format!("block b{i}(x) {{ b{j} one (b{j} two (x)) }}\n", j = i + 1))
                    + "block b20(x) { linear w (x, dim) }",
                "2 of b0",
            ),
            &["too-many-steps"],
        ),
        (
            "calls that double, each wrong",
            arch(
                repeat(28, |i| format!("block b{i}(x) {{ b{j}(x) + b{j}(x) }}\n", j = i + 1))
                    + "block b28(x) { x + none }",
                "2 of b0",
            ),
            &["operands"],
        ),
        (
            "aliases that double, all called",
            arch(
                "block a0 = decoder { mixer attention { heads 4 }  mlp swiglu }\n".to_owned()
                    + &repeat(20, |i| {
                        format!("block a{} = decoder {{ mixer a{i}  mlp a{i} }}\n", i + 1)
                    }),
                "2 of a20",
            ),
            &["too-many-steps"],
        ),
        (
            "aliases that double, none called",
            arch(
                "block holds(x; f, g) { x }\nblock a0 = decoder { mlp swiglu }\n".to_owned()
                    + &repeat(20, |i| format!("block a{} = holds {{ f a{i}  g a{i} }}\n", i + 1)),
                "2 of a20",
            ),
            &["text-too-large"],
        ),
        (
            "aliases that nest",
            arch(
                "block a0 = decoder { mixer attention { heads 4 }  mlp swiglu }\n".to_owned()
                    + &repeat(9000, |i| {
                        format!("block a{} = decoder {{ mixer a{i}  mlp swiglu }}\n", i + 1)
                    }),
                "2 of a9000",
            ),
            &["chain-too-long"],
        ),
        (
            "aliases that nest, shallow first",
            arch(
                "block a0 = decoder { mixer attention { heads 4 }  mlp swiglu }\n".to_owned()
                    + &repeat(200, |i| {
                        format!("block a{} = decoder {{ mixer a{i}  mlp swiglu }}\n", i + 1)
                    }),
                &format!("[{}]", repeat(200, |i| format!("a{i}, "))),
            ),
            &["no-such-config"],
        ),
        (
            "a chain that is never called",
            arch(
                repeat(10_000, |i| {
                    format!("block d{i}(x) {{ if false {{ x = d{}(x) }} x }}\n", i + 1)
                }) + "block d10000(x) { x }",
                "2 of d0",
            ),
            &[],
        ),
        (
            "a circle of thousands",
            arch(
                repeat(15_000, |i| format!("block d{i}(x) {{ d{}(x) }}\n", (i + 1) % 15_000)),
                "2 of d0",
            ),
            &["call-cycle"],
        ),
        (
            "unknown names",
            arch(repeat(20_000, |i| format!("block u{i}(x) {{ y{i}(x) }}\n")), "2 of u0"),
            &["unknown-name"],
        ),
    ]
}

fn large_bodies() -> Vec<HostileText> {
    vec![
        (
            "parameters in one body",
            arch(
                format!(
                    "block b(x) {{\n{}x }}",
                    repeat(15_000, |i| format!("x = linear w{i} (x, dim)\n"))
                ),
                "2 of b",
            ),
            &[],
        ),
        (
            "parameters in many layers",
            arch(
                format!(
                    "block b(x) {{\n{}x }}",
                    repeat(15_000, |i| format!("x = linear w{i} (x, dim)\n"))
                ),
                "100 of b",
            ),
            &["too-many"],
        ),
        (
            "slots in one body",
            arch(
                format!(
                    "block b(x) {{\n{}x }}",
                    repeat(20_000, |i| format!("x = slot S{i} (x)\n"))
                ),
                "2 of b",
            ),
            &[],
        ),
        (
            "branches in one body",
            arch(
                format!(
                    "block b(x) {{\n{}x }}",
                    repeat(9_000, |i| format!(
                        "if true {{ y{i} = x }} else {{ z{i} = x }}\nx = x + y{i}\n"
                    ))
                ),
                "2 of b",
            ),
            &[],
        ),
        (
            "names in one body, all captured",
            arch(
                format!(
                    "block b(x) {{\n{}x }}",
                    repeat(9_000, |i| format!("n{i} = {i}\nshare s{i} = linear {{ out n{i} }}\n"))
                ),
                "2 of b",
            ),
            &[],
        ),
        (
            "a wide definition, configured often",
            arch(
                format!("block w(x; {}) {{ x }}\n", repeat(128, |i| format!("c{i} = {i}, ")))
                    + &format!("block full = w {{ {} }}\n", repeat(128, |i| format!("c{i} {i}\n")))
                    + &format!(
                        "block b(x) {{\n{}x }}",
                        repeat(20_000, |i| format!("f{i} = full {{ c1 2 }}\n"))
                    ),
                "2 of b",
            ),
            &["too-many-steps"],
        ),
        (
            "a wide definition, in many layers",
            arch(
                format!("block w(x; {}) {{ x }}\n", repeat(128, |i| format!("c{i} = {i}, ")))
                    + &format!("block full = w {{ {} }}\n", repeat(128, |i| format!("c{i} {i}\n"))),
                &format!("[{}]", repeat(9_000, |i| format!("full {{ c1 {i} }},\n"))),
            ),
            &["too-many-edits"],
        ),
    ]
}

fn long_expressions_and_names() -> Vec<HostileText> {
    vec![
        (
            "the largest expression, at every depth",
            arch(
                repeat(31, |i| {
                    format!("block b{i}(x) {{ b{}(x){} }}\n", i + 1, " + x".repeat(250))
                }) + "block b31(x) { x }",
                "2 of b0",
            ),
            &[],
        ),
        (
            "the deepest nesting of calls, at every depth",
            arch(
                repeat(31, |i| {
                    format!(
                        "block b{i}(x) {{ {}b{}(x){} }}\n",
                        "silu(".repeat(60),
                        i + 1,
                        ")".repeat(60)
                    )
                }) + "block b31(x) { x }",
                "2 of b0",
            ),
            &["expression-too-deep"],
        ),
        (
            "a path as long as a file",
            format!(
                "{}arch b = a with {{ mixer{} 3 }}",
                arch(String::new(), &format!("2 of {LAYER}")),
                ".rope".repeat(60_000)
            ),
            &["chain-too-long"],
        ),
        (
            "settings printed often",
            format!(
                "{}arch b = a with {{\n{}}}",
                arch(
                    format!(
                        "block w(x; big = {}, n = 1) {{ x * n }}",
                        repeat(40, |_| "min(1, ".to_owned()) + "1" + &")".repeat(40)
                    ) + &format!(
                        "\nblock v = w {{ big {}1{} }}",
                        "min(1, ".repeat(40),
                        ")".repeat(40)
                    ),
                    "10_000 of v"
                ),
                repeat(2_000, |i| format!("layers[{}].n {}\n", 5 * i, i + 2))
            ),
            &["text-too-large"],
        ),
        (
            "a rule as long as a file, in ten thousand layers",
            arch(
                String::new(),
                &format!(
                    "10_000 of {}",
                    LAYER.replace(
                        " }  mlp",
                        &format!(
                            " }}  canon A {{ init normal({}1{}) }}  mlp",
                            "min(1 + 1, ".repeat(55),
                            ")".repeat(55)
                        )
                    )
                ),
            ),
            &[],
        ),
        (
            "long names, deep, in ten thousand layers",
            arch(
                repeat(30, |i| {
                    format!("block {}(x) {{ {} {}(x) }}\n", long(i), long(i + 1), long(i))
                }) + &format!("block {}(x) {{ linear {} (rms_norm(x), dim) }}", long(30), long(30)),
                &format!("10_000 of {}", long(0)),
            ),
            &["too-many"],
        ),
    ]
}

fn wrong_settings() -> Vec<HostileText> {
    vec![
        (
            "settings that do not exist",
            arch(
                String::new(),
                &format!("1 of decoder {{ {} }}", repeat(60_000, |i| format!("c{i} {i}\n"))),
            ),
            &["no-such-config"],
        ),
        (
            "edits of missing fields",
            format!(
                "{}arch b = a with {{\n{}}}",
                arch(String::new(), &format!("10 of {LAYER}")),
                repeat(60_000, |i| format!("c{i} {i}\n"))
            ),
            &["no-such-path"],
        ),
        (
            "edits that change nothing",
            format!(
                "{}arch b = a with {{\n{}}}",
                arch(String::new(), &format!("2_000 of {LAYER}")),
                repeat(2_000, |i| format!("layers[{i}].mixer.window none\n"))
            ),
            &["edit-changes-nothing"],
        ),
        (
            "roles that do not exist",
            arch(String::new(), &format!("1 of {LAYER}")).replace(
                "init lingua",
                &format!(
                    "init {{ embed ones  linear ones  norm ones\n{} }}",
                    repeat(40_000, |i| format!("r{i} ones\n"))
                ),
            ),
            &["unused-init-row"],
        ),
        (
            "sizes that overflow together",
            arch(
                format!(
                    "block b(x) {{\n{}x }}",
                    repeat(300, |i| format!(
                        "x = linear back{i} (linear up{i} (x, 60_000_000), dim)\n"
                    ))
                ),
                "10_000 of b",
            ),
            &["too-many"],
        ),
    ]
}

#[test]
fn hostile_texts_are_cheap() {
    for (name, text, wanted) in hostile() {
        let (codes, used) = in_a_child("lang::bounds::one_text", &text);
        let missing: Vec<_> =
            wanted.iter().filter(|c| !codes.contains(&(**c).to_owned())).collect();
        assert!(missing.is_empty() && codes.is_empty() == wanted.is_empty(), "{name}: {codes:?}");
        assert!(used <= TIME, "{name}: {used} hundredths of a second");
    }
}

/// The result of a text in a child process, within the limits: codes, and processor time.
pub(crate) fn in_a_child(test: &str, text: &str) -> (Vec<String>, u64) {
    let folder = support::scratch!("bounds");
    let name = blake3::hash(text.as_bytes()).to_hex();
    let file = folder.join(format!("{name}.canon"));
    std::fs::write(&file, text).unwrap();
    let out = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env("CANONC_BOUNDS", &file)
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let stdout = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{stdout}{}", String::from_utf8_lossy(&out.stderr));
    let line = stdout
        .lines()
        .find_map(|line| line.split_once("SAID "))
        .unwrap_or_else(|| panic!("{stdout}"))
        .1;
    let mut words = line.split(' ').map(str::to_owned);
    let used = words.next().unwrap().parse().unwrap();
    (words.collect(), used)
}

/// Hundredths of a second of processor time so far; 0 if the system does not report it.
pub(crate) fn used() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    after.split(' ').skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum()
}

/// Runs in a child: one text within the limits. Without a text it does nothing.
#[test]
fn one_text() {
    let Some(file) = std::env::var_os("CANONC_BOUNDS") else { return };
    let text = std::fs::read_to_string(file).unwrap();
    crate::ALLOCATOR.set_limit(MEMORY).unwrap();
    let before = used();
    let program = program_of(&text);
    let diagnostics = all_diagnostics(&program, TEXT);
    assert!(program.render(&diagnostics).len() < 1 << 20);
    let mut line = format!("SAID {}", used() - before);
    for diagnostic in &diagnostics {
        let _ = write!(line, " {}", diagnostic.code);
    }
    report(&line);
}

/// A line from the child to the test that started it.
#[expect(clippy::print_stdout, reason = "the child's report")]
pub(crate) fn report(line: &str) {
    println!("\n{line}");
}

#[test]
fn bounds_are_listed() {
    let text = read("dsl/LANGUAGE.md");
    for (name, value) in [
        ("MAX_CHAIN", MAX_CHAIN as i128),
        ("MAX_CONFIG", MAX_CONFIG as i128),
        ("MAX_LAYERS", MAX_LAYERS as i128),
        ("MAX_REACHED", compiler::arch::MAX_REACHED as i128),
        ("MAX_DEPTH", MAX_DEPTH as i128),
        ("MAX_EVALUATIONS", MAX_EVALUATIONS as i128),
        ("MAX_STEPS", MAX_STEPS as i128),
        ("MAX_NODES", MAX_NODES as i128),
        ("MAX_TENSORS", MAX_TENSORS as i128),
        ("MAX_PATHS", MAX_PATHS as i128),
        ("MAX_FIELDS", MAX_FIELDS as i128),
        ("MAX_WIDTH", i128::from(MAX_WIDTH)),
        ("MAX_ELEMENTS", i128::from(MAX_ELEMENTS)),
        ("MAX_TOTAL", i128::from(MAX_TOTAL)),
    ] {
        let row = text.lines().find(|line| line.starts_with(&format!("| `{name}`")));
        let row = row.unwrap_or_else(|| panic!("{name} is not listed"));
        let listed: String =
            row.split('|').nth(2).unwrap().chars().filter(char::is_ascii_digit).collect();
        assert_eq!(listed, value.to_string(), "{row}");
    }
}
