//! Errors in recipes and comparison files, as the user sees them; and sweeps.

use std::rc::Rc;

use dsl::Sources;
use lab::experiment::Experiment;
use lab::experiment::LockedArch;
use lab::recipe;

use support::locks::{
    BREVO, DEPO, MANO, SMALL, TEXT, compiled_text, experiments_of, locked, small,
};

/// A recipe in a typical layout.
const LAID_OUT: &str = "arch = \"../arch/small.canon\"

[data]
task = \"depo\"
seq_len = 128
depo.N = 12
depo.K = 2
depo.mini_vocab = 50
depo.min_tlen = 1
depo.max_tlen = 2

[batch]
sequences = 32

[optimizer]
lr = 0.003
weight_decay = 0.0133

[schedule]
kind = \"cosine\"
warmup = 60

[budget]
steps = 600

[seeds]
init = 1
data = 1
";

pub(crate) fn recipe_error(text: &str, arch: &Rc<LockedArch>) -> String {
    match experiments_of("recipes/test.toml", text, arch) {
        Err(shown) => shown,
        Ok(experiments) => panic!("{} locks of\n{text}", experiments.len()),
    }
}

/// The typical recipe with its first `from` replaced.
fn edit(from: &str, to: &str) -> String {
    assert!(LAID_OUT.contains(from), "{from}");
    LAID_OUT.replacen(from, to, 1)
}

/// The recipe with a mistake in its keys, its budget or its numbers.
fn mistakes_in_keys_and_numbers() -> Vec<(&'static str, String)> {
    vec![
        ("not toml", edit("lr = 0.003", "lr = ")),
        ("twice", edit("lr = 0.003", "lr = 0.003\nlr = 0.004")),
        ("unknown section", edit("[optimizer]", "[optimiser]")),
        ("unknown key", edit("weight_decay", "weigth_decay")),
        ("another's name", edit("lr =", "learning_rate =")),
        ("key of another section", edit("warmup = 60", "warmup = 60\nlr = 0.1")),
        ("unknown key without a similar one", edit("[budget]", "[budget]\nxyzzy = 1")),
        ("derived key", edit("[budget]", "[budget]\nflops = 1")),
        ("no arch", edit("arch = \"../arch/small.canon\"", "")),
        ("arch without a file", edit("small.canon", "small.toml")),
        ("arch absolute", edit("../arch/small.canon", "/arch/small.canon")),
        ("missing field", edit("lr = 0.003\n", "")),
        (
            "missing task",
            LAID_OUT
                .lines()
                .filter(|line| !line.contains("depo"))
                .map(|line| format!("{line}\n"))
                .collect(),
        ),
        ("missing budget", edit("steps = 600", "")),
        ("both budgets", edit("steps = 600", "steps = 600\ntokens = 2457600")),
        ("tokens that are not whole steps", edit("steps = 600", "tokens = 2457601")),
        ("fewer tokens than a step", edit("steps = 600", "tokens = 100")),
        ("zero steps", edit("steps = 600", "steps = 0")),
        ("negative", edit("sequences = 32", "sequences = -3")),
        ("overflow", edit("sequences = 32", "sequences = 99999999999999999999")),
        ("not an integer", edit("sequences = 32", "sequences = 3.5")),
        ("an integer as a float", edit("sequences = 32", "sequences = 32.0")),
        ("nan", edit("lr = 0.003", "lr = nan")),
        ("minus zero", edit("weight_decay = 0.0133", "weight_decay = -0.0")),
        ("too many digits", edit("lr = 0.003", "lr = 0.00316227766017")),
        ("lr zero", edit("lr = 0.003", "lr = 0")),
        ("a word for a number", edit("lr = 0.003", "lr = \"0.003\"")),
        ("fp16", edit("[budget]", "[precision]\npolicy = \"fp16\"\n[budget]")),
    ]
}

/// The recipe with a mistake that its other fields make one.
fn mistakes_in_sizes_and_tasks() -> Vec<(&'static str, String)> {
    vec![
        (
            "step given in both forms",
            edit("sequences = 32", "sequences = 32\nmicro_batches = 2\ntokens_per_step = 8192"),
        ),
        (
            "step that is not whole micro-batches",
            edit("sequences = 32", "sequences = 32\ntokens_per_step = 8193"),
        ),
        (
            "step of less than one micro-batch",
            edit("sequences = 32", "sequences = 32\ntokens_per_step = 100"),
        ),
        (
            "step of too many micro-batches",
            edit("sequences = 32", "sequences = 32\ntokens_per_step = 4294971392"),
        ),
        ("unknown task", edit("\"depo\"", "\"deop\"")),
        ("later task", edit("\"depo\"", "\"babilong\"")),
        ("field of another task", edit("K = 2", "K = 2\nmano.L = 4")),
        ("field of another schedule", edit("warmup = 60", "warmup = 60\nexp_factor = 0.5")),
        ("warmup too long", edit("warmup = 60", "warmup = 601")),
        ("names that do not exist", edit("N = 12", "N = 3000")),
        ("minimum length above the maximum", edit("min_tlen = 1", "min_tlen = 3")),
        ("window too short", edit("seq_len = 128", "seq_len = 8")),
        ("window too short for evaluation", edit("seq_len = 128", "seq_len = 14")),
        ("bos taken", edit("K = 2", "K = 2\ndepo.bos = 7")),
        ("keep one checkpoint", edit("[budget]", "[checkpoint]\nkeep = 1\n[budget]")),
        ("seed too large", edit("init = 1", "init = 18446744073709551616")),
        ("no threads", edit("[budget]", "[platform]\nthreads = 0\n[budget]")),
        ("date", edit("lr = 0.003", "lr = 1979-05-27")),
    ]
}

/// Mistakes in recipes of other tasks and archs, as they are reported.
fn mistakes_in_tasks(arch: &Rc<LockedArch>) -> Vec<(&'static str, String)> {
    let tiny = locked(&compiled_text(&SMALL.replace("10400", "300"), "small"));
    vec![
        ("vocabulary too small", recipe_error(LAID_OUT, &tiny)),
        (
            "loss on answers",
            recipe_error(&MANO.replace("mano.L = 4", "loss_on = \"answer\", mano.L = 4"), arch),
        ),
        (
            "lists of other lengths",
            recipe_error(&MANO.replace("qids = [1, 2]", "qids = [1]"), arch),
        ),
        ("letters twice", recipe_error(&MANO.replace("L = 4", "L = 4, mano.ttype = \"aa\""), arch)),
        (
            "longer than the longest",
            recipe_error(&MANO.replace("lens = [1, 2]", "lens = [1, 7]"), arch),
        ),
        (
            "division by a number without an inverse",
            recipe_error(
                &MANO.replace("L = 4", "L = 4, mano.ttype = \"asmd\", mano.value_mod = 25"),
                arch,
            ),
        ),
        (
            "division that rarely has a value",
            recipe_error(&MANO.replace("L = 4", "L = 9, ttype = \"d\", value_mod = 2"), arch),
        ),
    ]
}

/// Mistakes in recipes on text and in schedules, as they are reported.
fn mistakes_in_text_and_schedules(arch: &Rc<LockedArch>) -> Vec<(&'static str, String)> {
    vec![
        (
            "held_out with too many decimals",
            recipe_error(&TEXT.replace("seq_len", "held_out = 0.0000001, seq_len"), arch),
        ),
        (
            "tokenizer without a vocabulary",
            recipe_error(&TEXT.replace("seq_len", "tokenizer = \"tiktoken\", seq_len"), arch),
        ),
        (
            "vocabulary of bytes",
            recipe_error(&TEXT.replace("seq_len", "tokenizer_vocab = 300, seq_len"), arch),
        ),
        (
            "tokenizer with more tokens than the arch",
            recipe_error(
                &TEXT.replace(
                    "seq_len",
                    "tokenizer = \"tiktoken\", tokenizer_vocab = 128256, seq_len",
                ),
                arch,
            ),
        ),
        (
            "names twice",
            recipe_error(
                &format!("{TEXT}lingua = {{ harness_tasks = [\"piqa\", \"piqa\"] }}"),
                arch,
            ),
        ),
        ("no digest", recipe_error(&TEXT.replace("seq_len", "digest = \"abc\", seq_len"), arch)),
        (
            "wsd to zero",
            recipe_error(&MANO.replace("warmup = 10", "warmup = 10, lr_min_ratio = 0"), arch),
        ),
        (
            "wsd cycle",
            recipe_error(&MANO.replace("warmup = 10", "warmup = 1, cycle = 0.001"), arch),
        ),
        (
            "several at once",
            recipe_error(&LAID_OUT.replace("lr =", "rl =").replace("N = 12", "N = 0"), arch),
        ),
    ]
}

#[test]
fn each_mistake_is_reported_with_its_place_and_help() {
    let arch = small();
    let mut snapshots: Vec<(String, String)> = Vec::new();
    for (name, text) in
        mistakes_in_keys_and_numbers().into_iter().chain(mistakes_in_sizes_and_tasks())
    {
        snapshots.push((name.to_string(), recipe_error(&text, &arch)));
    }
    for (name, text) in [mistakes_in_tasks(&arch), mistakes_in_text_and_schedules(&arch)].concat() {
        snapshots.push((name.to_string(), text));
    }
    support::assert_cases!(
        "tests/lock",
        "each_mistake_is_reported_with_its_place_and_help",
        snapshots
    );
}

#[test]
fn sweeps_make_named_points_in_order() {
    let arch = small();
    let sweep = |lines: &str| {
        let text = format!("{}\n[sweep]\n{lines}\n", DEPO.replace("lr = 0.003, ", ""));
        experiments_of("recipes/lr.toml", &text, &arch)
    };
    let names = |lines: &str| -> Vec<String> {
        sweep(lines).unwrap_or_else(|e| panic!("{e}")).into_iter().map(|e| e.name).collect()
    };
    assert_eq!(
        names("optimizer.lr = [0.001, 0.002]\nseeds.eval = [7, 8]"),
        ["lr-lr0.001-eval7", "lr-lr0.001-eval8", "lr-lr0.002-eval7", "lr-lr0.002-eval8"]
    );
    assert_eq!(names("optimizer.lr = [2e-3]"), ["lr-lr0.002"]);
    let points =
        sweep("optimizer.lr = [0.001, 0.002]\noptimizer.betas = [[0.9, 0.95], [0.9, 0.98]]")
            .unwrap();
    assert_eq!(points.len(), 4);
    let ids: std::collections::BTreeSet<_> = points.iter().map(|e| e.id()).collect();
    assert_eq!(ids.len(), 4);
    // Fields that change together, as in the published recipes.
    let pairs = "\"optimizer.lr, optimizer.clip\" = [[0.002, 1], [0.003, \"none\"]]";
    let points = sweep(pairs).unwrap();
    assert_eq!(points[0].name, "lr-lr0.002-clip1");
    assert_eq!((points[1].name.as_str(), points[1].optimizer.clip), ("lr-lr0.003-clipnone", None));
    let archs = "arch = [\"a.canon\", \"b.canon#c\"]\n\"optimizer.lr\" = [0.1]";
    let text = format!(
        "{}\n[sweep]\n{archs}\n",
        DEPO.replace("lr = 0.003, ", "").replace("arch = \"small.canon\"\n", "")
    );
    let points = experiments_of("recipes/s.toml", &text, &arch).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        points.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(),
        ["s-a-lr0.1", "s-c-lr0.1"]
    );
}

/// Points with their own names, and archs that change together with values.
#[test]
fn points_can_be_named() {
    let arch = small();
    let sweep = |lines: &str| {
        let recipe = DEPO.replace("lr = 0.003, ", "").replace("arch = \"small.canon\"\n", "");
        let points =
            experiments_of("recipes/s.toml", &format!("{recipe}\n[sweep]\n{lines}\n"), &arch);
        let points = points.unwrap_or_else(|e| panic!("{e}"));
        let row = |e: Experiment| (e.name.clone(), e.lr.to_string(), e.seeds.eval);
        points.into_iter().map(row).collect::<Vec<_>>()
    };
    let is = |name: &str, lr: &str, seed: u64| (name.to_owned(), lr.to_owned(), seed);
    let named = "\"name, arch\" = [[\"Llama\", \"a.canon\"], [\"Canon\", \"b.canon\"]]\n\
        \"name, optimizer.lr\" = [[\"slow\", 0.1], [\"fast\", 0.2]]";
    assert_eq!(
        sweep(named),
        [
            is("Llama-slow", "0.1", 0),
            is("Llama-fast", "0.2", 0),
            is("Canon-slow", "0.1", 0),
            is("Canon-fast", "0.2", 0)
        ]
    );
    // A point without a name is named after its values; if no point has a name, the file's name is used.
    let mixed = "\"arch, optimizer.lr\" = [[\"a.canon\", 0.1], [\"b.canon\", 0.1], [\"b.canon\", 0.2]]\n\
        \"seeds.eval\" = [7]";
    assert_eq!(
        sweep(mixed),
        [
            is("s-a-lr0.1-eval7", "0.1", 7),
            is("s-b-lr0.1-eval7", "0.1", 7),
            is("s-b-lr0.2-eval7", "0.2", 7)
        ]
    );
}

#[test]
fn sweeps_that_are_wrong() {
    let arch = small();
    let mut snapshots: Vec<(String, String)> = Vec::new();
    for (name, lines) in [
        ("not a list", "optimizer.clip = 1"),
        ("empty", "optimizer.clip = []"),
        ("unknown", "optimizer.lrr = [1]"),
        ("derived", "budget.flops = [1]"),
        ("fixed too", "optimizer.lr = [0.1]"),
        ("the arch too", "arch = [\"b.canon\"]"),
        ("twice", "optimizer.clip = [1]\n\"optimizer.clip, seeds.eval\" = [[1, 2]]"),
        ("a bad value", "optimizer.clip = [1, -1]"),
        ("equal values", "optimizer.clip = [1, 1.0]"),
        ("not a tuple", "\"optimizer.clip, seeds.eval\" = [[1, 2], 3]"),
        ("no arch file", "arch = [\"b\"]"),
        ("both budgets", "budget.tokens = [4096]"),
        ("names alone", "name = [\"a\"]"),
        ("no name", "\"name, optimizer.clip\" = [[\"a/b\", 1], [7, 2]]"),
        ("a name twice", "\"name, optimizer.clip\" = [[\"a\", 1], [\"a\", 2]]"),
        (
            "names that collide",
            "\"name, optimizer.clip\" = [[\"a\", 1], [\"a-b\", 2]]\n\"name, seeds.eval\" = [[\"b-c\", 1], [\"c\", 2]]",
        ),
        ("too many", "\"seeds.eval\" = [SEEDS]\nbatch.micro_batches = [SEEDS]"),
    ] {
        let many: Vec<String> = (1..=101).map(|n| n.to_string()).collect();
        let text = format!("{DEPO}\n[sweep]\n{}\n", lines.replace("SEEDS", &many.join(", ")));
        snapshots.push((name.to_string(), recipe_error(&text, &arch)));
    }
    support::assert_cases!("tests/lock", "sweeps_that_are_wrong", snapshots);
}

/// A comparison file without a mistake.
const GOOD_COMPARISON: &str = "base = \"a\"\ntreatment = [\"canon\"]\n[arms]\na = \"a.toml\"\nb = \"b.toml\"\n\
    [seeds]\ninit = [1, 2]\ndata = [1, 2]\n[replicate]\ninit = [3, 4]\ndata = [3, 4]\n";

/// Mistakes in what a comparison declares: a name, and an edit of the right file.
const WRONG_DECLARATIONS: &[(&str, &str, &str)] = &[
    ("an arm's point is not a name", "b = \"b.toml\"", "b = \"b.toml#a/b\""),
    ("a sweep of values", "[replicate]", "[sweep]\n\"optimizer.lr\" = [1]\n[replicate]"),
    ("a sweep without names", "[replicate]", "[sweep]\n\"arms.c\" = [\"c.toml\"]\n[replicate]"),
    (
        "a sweep of an arm twice",
        "[replicate]",
        "[sweep]\n\"name, arms.a\" = [[\"x\", \"c.toml\"]]\n[replicate]",
    ),
    (
        "a sweep of two keys",
        "[replicate]",
        "[sweep]\n\"name, arms.c\" = [[\"x\", \"c.toml\"]]\n\"name, arms.d\" = [[\"x\", \"c.toml\"]]\n[replicate]",
    ),
    ("a sweep of no rows", "[replicate]", "[sweep]\n\"name, arms.c\" = []\n[replicate]"),
    (
        "a row of another length",
        "[replicate]",
        "[sweep]\n\"name, arms.c\" = [[\"x\"]]\n[replicate]",
    ),
    (
        "rows of one name",
        "[replicate]",
        "[sweep]\n\"name, arms.c\" = [[\"x\", \"c.toml\"], [\"X\", \"d.toml\"]]\n[replicate]",
    ),
    ("not toml", "base =", "base"),
    ("no base", "base = \"a\"\n", ""),
    ("base that is not an arm", "base = \"a\"", "base = \"aa\""),
    ("base is not a name", "base = \"a\"", "base = 3"),
    ("no treatment", "treatment = [\"canon\"]\n", ""),
    ("treatment is not a list", "treatment = [\"canon\"]", "treatment = \"canon\""),
    ("treatment is empty", "treatment = [\"canon\"]", "treatment = []"),
    ("treatment of an unknown arm", "treatment = [\"canon\"]", "treatment = { c = [\"canon\"] }"),
    (
        "treatment of the base",
        "treatment = [\"canon\"]",
        "treatment = { a = [\"x\"], b = [\"canon\"] }",
    ),
    (
        "a misspelt base of treated arms",
        "base = \"a\"\ntreatment = [\"canon\"]",
        "base = \"aa\"\ntreatment = { aa = [\"x\"], b = [\"canon\"] }",
    ),
    ("a quantity that is not known", "[arms]", "[match]\non = \"params\"\narms = [\"a\"]\n[arms]"),
];

/// Mistakes in arms, seeds, grids and the selection.
const WRONG_ARMS_AND_SEEDS: &[(&str, &str, &str)] = &[
    ("one arm", "b = \"b.toml\"\n", ""),
    ("arms of one name", "b = \"b.toml\"", "A = \"b.toml\""),
    ("an arm's name", "b = \"b.toml\"", "\"b c\" = \"b.toml\""),
    ("an arm is not a recipe", "b = \"b.toml\"", "b = \"b.lock\""),
    ("an arm is not a path", "b = \"b.toml\"", "b = 7"),
    ("an arm is an arch without a recipe", "b = \"b.toml\"", "b = \"../arch/b.canon\""),
    (
        "the recipe of archs is not a recipe",
        "base = \"a\"\n",
        "base = \"a\"\nrecipe = \"a.lock\"\n",
    ),
    ("a recipe of no arm", "base = \"a\"\n", "base = \"a\"\nrecipe = \"c.toml\"\n"),
    ("the recipe of archs is not a path", "base = \"a\"\n", "base = \"a\"\nrecipe = 7\n"),
    ("unknown key", "base =", "bass = 1\nbase ="),
    ("unknown seed", "init = [1, 2]", "inti = [1, 2]\ninit = [1, 2]"),
    ("no seeds", "init = [1, 2]\n", ""),
    ("seed counts", "init = [1, 2]", "init = [1, 2, 3]"),
    ("seeds are not a list", "init = [1, 2]", "init = 1"),
    ("seeds are empty", "init = [1, 2]", "init = []"),
    ("a seed is not a seed", "init = [1, 2]", "init = [1, -2]"),
    (
        "replicate repeats a seed",
        "[replicate]\ninit = [3, 4]\ndata = [3, 4]",
        "[replicate]\ninit = [2, 4]\ndata = [2, 4]",
    ),
    (
        "replicate has more seeds",
        "[replicate]\ninit = [3, 4]\ndata = [3, 4]",
        "[replicate]\ninit = [3, 4, 5]\ndata = [3, 4, 5]",
    ),
    (
        "the earlier names of keys",
        "[replicate]",
        "[selection]\nmetric = \"eval_loss\"\nchoose = \"least\"\n[again]",
    ),
    ("grid of an unknown field", "[replicate]", "[grid]\n\"optimizer.lrr\" = [1]\n[replicate]"),
    ("grid of seeds", "[replicate]", "[grid]\n\"seeds.init\" = [1]\n[replicate]"),
    ("grid is not a list", "[replicate]", "[grid]\n\"optimizer.lr\" = 1\n[replicate]"),
    ("grid with a bad value", "[replicate]", "[grid]\n\"optimizer.lr\" = [1, nan]\n[replicate]"),
    (
        "grid in the treatment",
        "\"canon\"]",
        "\"canon\", \"optimizer.lr\"]\ngrid = { \"optimizer.lr\" = [1, 2] }",
    ),
    ("the worst loss", "[replicate]", "[selection]\nmode = \"max\"\n[replicate]"),
    (
        "the worst accuracy",
        "[replicate]",
        "[selection]\nmetric = \"exact_match\"\nmode = \"min\"\n[replicate]",
    ),
    (
        "selection",
        "[replicate]",
        "[selection]\nmetric = \"bleu\"\nmode = \"best\"\nper_arm = 1\nby = 2\n[replicate]",
    ),
];

#[test]
fn comparison_files_that_are_wrong() {
    let read = |text: &str| {
        let mut sources = Sources::new();
        let file = sources.add("recipes/compare.toml", text);
        let (read, diagnostics) = recipe::comparison::read(&sources, file);
        assert_eq!(read.is_none(), !diagnostics.is_empty());
        dsl::render(&sources, &diagnostics)
    };
    assert_eq!(read(GOOD_COMPARISON), "");
    assert_eq!(recipe::file_kind(GOOD_COMPARISON), recipe::FileKind::Comparison);
    // Archs of one recipe.
    let archs = GOOD_COMPARISON.replace("base = \"a\"\n", "base = \"a\"\nrecipe = \"depo.toml\"\n");
    assert_eq!(read(&archs.replace("b.toml", "../arch/all.canon#b")), "");
    assert_eq!(recipe::file_kind(DEPO), recipe::FileKind::Recipe);
    let mut snapshots: Vec<(String, String)> = Vec::new();
    for (name, from, to) in WRONG_DECLARATIONS.iter().chain(WRONG_ARMS_AND_SEEDS) {
        assert!(GOOD_COMPARISON.contains(from), "{from}");
        let text = read(&GOOD_COMPARISON.replacen(from, to, 1));
        assert!(!text.is_empty(), "{name}");
        snapshots.push((name.to_string(), text));
    }
    support::assert_cases!("tests/lock", "comparison_files_that_are_wrong", snapshots);
}

/// Two tokens more, both below the largest: the published count is unchanged, the dense one grows by two.
#[test]
fn mano_divides_by_a_prime() {
    let vocab = |ids: &str, letters: &str| -> i64 {
        let data = format!("ids = \"{ids}\", mano.ttype = \"{letters}\", mano.L = 4");
        let text = MANO.replace("mano.L = 4", &data);
        let experiments = experiments_of("recipes/test.toml", &text, &small()).unwrap();
        experiments[0].value("data.vocab").unwrap().to_string().parse().unwrap()
    };
    assert_eq!(vocab("published", "asmd"), vocab("published", "asm"));
    assert_eq!(vocab("dense", "asmd"), vocab("dense", "asm") + 2);
}

/// The recipe of Depo with other data.
fn depo(seq_len: i64, rest: &str) -> String {
    let data = DEPO.lines().find(|line| line.starts_with("data")).unwrap();
    DEPO.replace(data, &format!("data = {{ task = \"depo\", seq_len = {seq_len}, {rest} }}"))
}

fn mano(seq_len: i64) -> String {
    let text = MANO.replace("tokens = 307200", "steps = 100");
    text.replace("seq_len = 128", &format!("seq_len = {seq_len}"))
}

fn brevo(seq_len: i64, rest: &str) -> String {
    let data = BREVO.lines().find(|line| line.starts_with("data")).unwrap();
    let fields = format!("task = \"brevo\", brevo.N = 12, seq_len = {seq_len}{rest}");
    BREVO.replace(data, &format!("data = {{ {fields} }}"))
}

/// The recipe with an evaluation on samples as in training.
fn train(text: String) -> String {
    format!("{text}evaluation = {{ mode = \"train\" }}\n")
}

/// The window must hold the shortest sample that training and evaluation can each draw.
#[test]
fn a_window_holds_an_answer_of_every_kind_of_sample_it_is_made_of() {
    let arch = small();
    let names = "depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2";
    let few = "depo.K = 2, depo.mini_vocab = 1, depo.min_tlen = 1, depo.max_tlen = 12, depo.N = 12";
    // bos, edges, then the question, a name, the answer marker and a name; a window has one more.
    let cases: [(String, bool); 20] = [
        (depo(28, &format!("depo.N = 12, {names}")), true),
        (depo(27, &format!("depo.N = 12, {names}")), false),
        (train(depo(10, &format!("depo.N = 12, {names}"))), true),
        (train(depo(9, &format!("depo.N = 12, {names}"))), false),
        (depo(40, &format!("depo.N = 12, depo.separator = true, {names}")), true),
        (depo(39, &format!("depo.N = 12, depo.separator = true, {names}")), false),
        // One name of each length from 1 to 12, each in two edges.
        (depo(160, few), true),
        (depo(159, few), false),
        // Training cycles of three take the three shortest.
        (train(depo(16, few)), true),
        (train(depo(15, few)), false),
        // The operations, one operand more, bos, the length, and the value after its marker.
        (mano(12), true),
        (mano(11), false),
        (train(mano(6)), true),
        (train(mano(5)), false),
        // Of twelve vertices at least eight are not leaves; then the query, its marker, and an edge as the answer.
        (brevo(21, ""), true),
        (brevo(20, ""), false),
        (brevo(40, ", brevo.multi = true"), true),
        (brevo(39, ", brevo.multi = true"), false),
        (train(brevo(7, "")), true),
        (train(brevo(6, "")), false),
    ];
    for (text, fits) in cases {
        match (experiments_of("recipes/test.toml", &text, &arch), fits) {
            (Ok(_), true) => {}
            (Err(error), false) => assert!(error.contains("bad-task"), "{error}"),
            (Ok(_), false) => panic!("locked:\n{text}"),
            (Err(error), true) => panic!("{error}"),
        }
    }
    // More questions than names are cut to the number of names, in the generator and in the table.
    for m in [13, 65_536] {
        let text = DEPO.replace("K = 2", &format!("K = 2, depo.M = {m}"));
        assert_eq!(
            experiments_of("recipes/test.toml", &text, &arch).map(|experiments| experiments.len()),
            Ok(1)
        );
    }
    let doc = lab::field::find("data.depo.M").unwrap().doc;
    assert!(doc.contains("fewer names"), "{doc}");
}

/// Nothing else is run in place of what canonc cannot do.
#[test]
fn parallelism_that_changes_bits_is_refused_by_name() {
    let arch = small();
    for (key, what) in [
        ("tp_size = 2", "tensor parallelism"),
        ("pipeline_parallel = 4", "pipeline parallelism"),
        ("context_parallel_size = 2", "context parallelism"),
        ("expert_parallel = 2", "expert parallelism"),
        ("fp8 = true", "fp8"),
    ] {
        let shown = recipe_error(&format!("{LAID_OUT}\n[platform]\n{key}\n"), &arch);
        assert!(shown.contains(&format!("asks for {what}, which canonc does not do")), "{shown}");
        assert!(shown.contains("`devices` and `shard`"), "{shown}");
    }
    let shown = recipe_error(&format!("{LAID_OUT}\n[precision]\npolicy = \"fp8\"\n"), &arch);
    assert!(shown.contains("fp8"), "{shown}");
}

/// A section that does not exist is one mistake, however many keys it has.
#[test]
fn an_unknown_section_is_reported_once() {
    let arch = small();
    for (text, section, help) in [
        (edit("[seeds]", "[seedz]"), "[seedz]", "did you mean `[seeds]`?"),
        (edit("[optimizer]", "[optimiser]"), "[optimiser]", "did you mean `[optimizer]`?"),
        (edit("[optimizer]", "[training]"), "[training]", "did you mean `lr` in `[optimizer]`?"),
        (format!("{LAID_OUT}\n[zzz]\n"), "[zzz]", "the sections are batch, "),
        (format!("{LAID_OUT}\n[zzz.a]\nb = 1\n[zzz.c]\n"), "[zzz]", "the sections are batch, "),
        (format!("{LAID_OUT}\n[platform.kernelz]\nb = 1\nc = 2\n"), "[platform.kernelz]", ""),
    ] {
        let shown = recipe_error(&text, &arch);
        assert_eq!(shown.matches("error[").count(), 1, "{shown}");
        assert!(shown.contains(&format!("a recipe has no section `{section}`")), "{shown}");
        assert!(shown.contains(help), "{shown}");
    }
}
