//! `canonc audit`: the published set as a snapshot, sets of locks and tables, rules, bad input.

use super::super::{canonc, folder, root};

const ARCHS: &str = "\
arch small {
  vocab 300   dim 8   norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer attention { heads 2 }
    mlp   swiglu { hidden 16 }
  }
}
arch smallcanon = small with { canon A, B, C, D }
/// What is often trained instead: less of each head is turned.
arch smallcanon_release = smallcanon with { mixer.rope.dims 2 }
";

fn recipe(arch: &str, more: &str) -> String {
    format!(
        "arch = \"../arch/small.canon#{arch}\"\n\
         data = {{ task = \"depo\", seq_len = 64, depo.N = 6, depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2, ids = \"dense\" }}\n\
         batch = {{ sequences = 4 }}\n\
         optimizer = {{ lr = 0.003, weight_decay = 0.1 }}\n\
         schedule = {{ kind = \"cosine\", warmup = 10 }}\n\
         budget = {{ steps = 100 }}\n\
         seeds = {{ init = 1, data = 1 }}\n{more}"
    )
}

fn locked(recipes: &[(&str, String)]) -> tempfile::TempDir {
    let mut files = vec![("arch/small.canon".to_owned(), ARCHS.to_owned())];
    files.extend(recipes.iter().map(|(name, text)| (format!("recipes/{name}.toml"), text.clone())));
    let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let dir = folder(&files);
    for (name, _) in recipes {
        let ran = canonc(dir.path(), &["build", &format!("recipes/{name}.toml")]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
    dir
}

#[test]
fn the_published_set() {
    let dir = folder(&[]);
    let ran = canonc(dir.path(), &["audit", "--published"]);
    insta::assert_snapshot!("audit_published", ran.text(dir.path()));
}

#[test]
fn the_published_set_as_json() {
    let dir = folder(&[]);
    let ran = canonc(dir.path(), &["audit", "--published", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["schema"], "canonc.audit.v1");
    assert_eq!(json["experiments"], 64);
    assert_eq!(json["fails"], true);
    let pairs = json["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 32);
    assert_eq!(pairs.iter().filter(|pair| pair["clean"] == true).count(), 17);
    let findings = json["findings"].as_array().unwrap();
    let finding = |rule: &str| findings.iter().find(|f| f["rule"] == rule).unwrap();
    let share = finding("twin-training");
    assert_eq!(share["key"], "arch.mixer.rope.share");
    assert_eq!(share["places"].as_array().unwrap().len(), 8);
    // The text truncates this list, the JSON does not.
    assert_eq!(finding("budget-in-comment")["places"].as_array().unwrap().len(), 64);
}

#[test]
fn the_page_lists_every_rule_and_key() {
    let dir = folder(&[]);
    let ran = canonc(dir.path(), &["audit", "--list"]);
    assert_eq!(ran.code, 0);
    let page = std::fs::read_to_string(root().join("recipes/AUDIT.md")).unwrap();
    let begin = "<!-- canonc audit --list -->\n";
    let (_, rest) = page.split_once(begin).unwrap();
    let (held, _) = rest.split_once("<!-- end -->").unwrap();
    assert_eq!(
        held.trim(),
        ran.stdout.trim(),
        "put what `canonc audit --list` prints into recipes/AUDIT.md"
    );
}

#[test]
fn locks_of_a_clean_pair() {
    let dir = locked(&[("a", recipe("small", "")), ("acanon", recipe("smallcanon", ""))]);
    let ran = canonc(dir.path(), &["audit", "lockfiles"]);
    insta::assert_snapshot!("audit_clean_locks", ran.text(dir.path()));
}

#[test]
fn locks_of_confounded_pairs() {
    let dir = locked(&[
        ("a", recipe("small", "")),
        ("acanon", recipe("smallcanon_release", "evaluation = { every = 50 }\n")),
        ("b", recipe("small", "precision = { policy = \"f32\" }\nplatform = { fuse = true }\n")),
        (
            "bcanon",
            recipe("smallcanon", "platform = { fuse = false }\n").replace("data = 1", "data = 2"),
        ),
        ("c-lr0.002", recipe("small", "")),
    ]);
    let ran = canonc(dir.path(), &["audit", "lockfiles"]);
    insta::assert_snapshot!("audit_confounded_locks", ran.text(dir.path()));
}

/// With two pairs, one with other slot fills, neither is the majority, so both are reported.
#[test]
fn locks_whose_slots_are_filled_in_two_ways() {
    let archs = format!(
        "{ARCHS}arch othercanon = small with {{\n  canon B, C, D\n  \
         fill A with canon {{ kernel 3, residual false, activation silu }}\n}}\n"
    );
    let small = |seed: &str| recipe("small", "").replace("init = 1", &format!("init = {seed}"));
    let canon = |arch: &str| recipe(arch, "").replace("init = 1", "init = 2");
    let files = [
        ("arch/small.canon", archs),
        ("recipes/a.toml", small("1")),
        ("recipes/acanon.toml", recipe("smallcanon", "")),
        ("recipes/b.toml", small("2")),
        ("recipes/bcanon.toml", canon("othercanon")),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (*p, t.as_str())).collect();
    let dir = folder(&files);
    for (path, _) in files.iter().skip(1) {
        assert_eq!(canonc(dir.path(), &["build", path]).code, 0);
    }
    let ran = canonc(dir.path(), &["audit", "lockfiles"]);
    insta::assert_snapshot!("audit_two_fills", ran.text(dir.path()));
}

#[test]
fn why_there_are_no_pairs() {
    let dir = folder(&[
        ("unsaid.tsv", "name\toptimizer.lr\nA\t0.1\nACanon\t0.2\n"),
        ("none.tsv", "name\tarch.canon\nA\t\nB\tnone\n"),
        ("all.tsv", "name\tarch.canon\nA\tA\nB\tB\n"),
        ("far.tsv", "name\tarch.canon\tp\tq\tr\ts\nA\t\t1\t1\t1\t1\nB\tA\t2\t2\t2\t2\n"),
    ]);
    let mut text = String::new();
    for table in ["unsaid.tsv", "none.tsv", "all.tsv", "far.tsv"] {
        let ran = canonc(dir.path(), &["audit", table]);
        let json = canonc(dir.path(), &["audit", table, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
        text += &format!("$ canonc audit {table}\n{}{}\n", ran.text(dir.path()), json["unpaired"]);
    }
    insta::assert_snapshot!("audit_no_pairs", text);
}

#[test]
fn nan_and_infinite_numbers_are_refused() {
    let yaml = LINGUA.replace("steps: 240000", "steps: .inf");
    let dir = folder(&[
        ("nan.tsv", "name\toptimizer.lr\nA\t0.1\nB\tNaN\n"),
        ("large.csv", "model,optim.weight_decay\nA,1e400\n"),
        ("run.yaml", &yaml),
        ("mine.tsv", "name\tarch.canon\tmine.note\nA\t\tNaN\nB\tA\t1e400\n"),
    ]);
    let mut text = String::new();
    for path in ["nan.tsv", "large.csv", "run.yaml"] {
        let ran = canonc(dir.path(), &["audit", path]);
        assert_eq!(ran.code, 2, "{path}");
        text += &format!("$ canonc audit {path}\n{}", ran.text(dir.path()));
    }
    insta::assert_snapshot!("audit_no_numbers", text);
    // A difference in an unknown key may matter, so it is reported.
    let ran = canonc(dir.path(), &["audit", "mine.tsv"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("mine.note: an unknown key"), "{}", ran.stdout);
}

#[test]
fn locks_of_a_sweep_off_its_invariant() {
    let sweep = "[sweep]\n\"optimizer.lr, optimizer.weight_decay\" = \
                 [[0.001, 0.3], [0.002, 0.15], [0.003, 0.1], [0.004, 0.1], [0.005, 0.06]]\n";
    let text = recipe("small", "").replace("optimizer = { lr = 0.003, weight_decay = 0.1 }\n", "");
    let dir = locked(&[("s", format!("{text}{sweep}"))]);
    let ran = canonc(dir.path(), &["audit", "lockfiles"]);
    insta::assert_snapshot!("audit_sweep", ran.text(dir.path()));
}

#[test]
fn a_comparison_is_its_arms() {
    let path = root().join("lockfiles/cpu_depo_llama.lock");
    let dir = folder(&[]);
    let ran = canonc(dir.path(), &["audit", path.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    assert!(ran.stdout.contains("2 experiments, 1 pair, 1 of them clean"), "{}", ran.stdout);
}

/// The published set again, read from its locks: findings based on keys and curves are the
/// same; the contents of comments and dumps are not part of a lock.
#[test]
fn the_locks_of_the_published_set() {
    let table = std::fs::read_to_string(root().join("recipes/published/data/recipes.tsv")).unwrap();
    let names = table.lines().skip(1).filter_map(|line| line.split('\t').next());
    let mut arguments = vec!["audit".to_owned(), "--json".to_owned(), "--curves".to_owned()];
    arguments.push("recipes/published/data/curves_trainloss_linear.csv.gz".to_owned());
    arguments.extend(names.map(|name| format!("lockfiles/{name}.lock")));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ran = canonc(&root(), &arguments);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let failing = json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| matches!(finding["severity"].as_str(), Some("confound" | "error")));
    let failures: Vec<(&str, &str, usize)> = failing
        .map(|finding| {
            let text = |key: &str| finding[key].as_str().unwrap();
            (text("rule"), text("key"), finding["places"].as_array().unwrap().len())
        })
        .collect();
    let want = [
        ("twin-training", "arch.mixer.rope.share", 8),
        ("twin-kernel", "platform.kernels.gated_norm", 1),
        ("lr-wd-steps", "optimizer.lr * optimizer.weight_decay * budget.steps", 6),
        ("data-order", "curve", 1),
    ];
    assert_eq!(failures, want);
    let clean = json["pairs"].as_array().unwrap().iter().filter(|pair| pair["clean"] == true);
    // 17, plus five pairs that differ only in the revision of the code that wrote their dumps.
    assert_eq!(clean.count(), 22);
}

/// The published set once more, as configurations: one key per line, devices in a comment.
fn as_yaml(columns: &[&str], cells: &[&str]) -> String {
    let mut text = String::new();
    let mut open: Vec<&str> = Vec::new();
    let mut keys: Vec<(&str, &str)> = columns.iter().copied().zip(cells.iter().copied()).collect();
    keys.retain(|(key, cell)| !cell.is_empty() && is_key(key));
    keys.sort();
    if let Some(at) = columns.iter().position(|column| *column == "gpus_from_comment") {
        text += &format!("# run with {} GPUs to replicate our result\n", cells[at]);
    }
    for (key, cell) in keys {
        let mut parts: Vec<&str> = key.split('.').collect();
        let last = parts.pop().unwrap();
        let same = open.iter().zip(&parts).take_while(|(a, b)| a == b).count();
        open.truncate(same);
        for part in &parts[same..] {
            text += &format!("{}{part}:\n", "  ".repeat(open.len()));
            open.push(part);
        }
        let cell = match cell {
            "True" | "False" => cell.to_lowercase(),
            _ if key.ends_with(".tasks") => format!("[{cell}]"),
            _ => cell.to_owned(),
        };
        text += &format!("{}{last}: {cell}\n", "  ".repeat(open.len()));
    }
    text
}

/// Whether a column of the published table is a key of the files it was made from.
fn is_key(column: &str) -> bool {
    column.contains('.')
        || ["steps", "grad_acc_steps", "seed", "probe_freq", "async_eval_gpus"].contains(&column)
}

#[test]
fn the_published_set_as_configurations() {
    let table = std::fs::read_to_string(root().join("recipes/published/data/recipes.tsv")).unwrap();
    let mut lines = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let columns = lines.next().unwrap();
    let files: Vec<(String, String)> =
        lines.map(|cells| (format!("set/{}.yaml", cells[0]), as_yaml(&columns, &cells))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let dir = folder(&files);
    let ran = canonc(dir.path(), &["audit", "set", "--json"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let unseen = json["unseen"].to_string();
    assert!(unseen.contains("no curves") && unseen.contains("no revision"), "{unseen}");
    let failing = json["findings"].as_array().unwrap().iter();
    let failing: Vec<(&str, &str, usize)> = failing
        .filter(|finding| matches!(finding["severity"].as_str(), Some("confound" | "error")))
        .map(|finding| {
            let text = |key: &str| finding[key].as_str().unwrap();
            (text("rule"), text("key"), finding["places"].as_array().unwrap().len())
        })
        .collect();
    let want = [
        ("budget-ambiguous", "budget.tokens", 2),
        ("twin-training", "arch.mixer.rope.share", 8),
        ("twin-kernel", "platform.kernels.gated_norm", 1),
        ("lr-wd-steps", "optimizer.lr * optimizer.weight_decay * budget.steps", 6),
    ];
    assert_eq!(failing, want);
    let pairs = json["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 32);
    // 17, the pair that read another order, and five with dumps of two revisions.
    assert_eq!(pairs.iter().filter(|pair| pair["clean"] == true).count(), 23);
}

/// A key that only another trainer reads is a confound, unless canonc runs both arms.
#[test]
fn keys_that_only_another_trainer_reads() {
    let text = |arch: &str, more: &str| {
        recipe(arch, more).replace(
            "data = { task = \"depo\", seq_len = 64, depo.N = 6, depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2, ids = \"dense\" }",
            "data = { task = \"text\", seq_len = 64, source = \"books\" }",
        )
    };
    let dir = locked(&[
        ("a", text("small", "")),
        ("acanon", text("smallcanon", "lingua = { seed = 1, root_dir = \"elsewhere\" }\n")),
    ]);
    let diff = ["diff", "lockfiles/a.lock", "lockfiles/acanon.lock", "--treatment", "canon"];
    let ran = canonc(dir.path(), &diff);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    let mut out = format!("$ canonc {}\n{}", diff.join(" "), ran.text(dir.path()));
    let ours = [&diff[..], &["--trainer", "canonc"]].concat();
    let ran = canonc(dir.path(), &ours);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    out += &format!("$ canonc {}\n{}", ours.join(" "), ran.text(dir.path()));
    let ran = canonc(dir.path(), &["audit", "lockfiles"]);
    assert_eq!(ran.code, 1);
    out += &format!("$ canonc audit lockfiles\n{}", ran.text(dir.path()));
    let pair = "base = \"a\"\ntreatment = [\"canon\"]\n[arms]\na = \"a.toml\"\nacanon = \"acanon.toml\"\n\
                [seeds]\ninit = [1]\ndata = [1]\n";
    for (name, head, code) in
        [("c", "", 1), ("d", "trainer = \"canonc\"\n", 0), ("e", "trainer = \"lingua\"\n", 2)]
    {
        std::fs::write(dir.path().join(format!("recipes/{name}.toml")), format!("{head}{pair}"))
            .unwrap();
        let build = ["build", &format!("recipes/{name}.toml")];
        let ran = canonc(dir.path(), &build);
        assert_eq!(ran.code, code, "{name}: {}{}", ran.stdout, ran.stderr);
        out += &format!("$ canonc {}\n{}", build.join(" "), ran.text(dir.path()));
    }
    let lock = std::fs::read_to_string(dir.path().join("lockfiles/d.lock")).unwrap();
    assert!(
        lock.contains("\ntrainer = \"canonc\"\n") && lock.contains("; canonc runs both arms\"")
    );
    // An audit of the comparison uses its declaration.
    let ran = canonc(dir.path(), &["audit", "lockfiles/d.lock"]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    assert!(ran.stdout.contains("1 of them clean") && !ran.stdout.contains("twin-data"));
    let ran = canonc(dir.path(), &[&diff[..], &["--trainer", "lingua"]].concat());
    assert_eq!(ran.code, 2);
    insta::assert_snapshot!("audit_carried", out);
}

/// Each key of a launch is counted or reported; contradictory keys are an error that shows both values.
#[test]
fn keys_of_launches() {
    let file = |keys: &str| format!("{keys}{}", LINGUA.replace("# 128 H200 GPUs", ""));
    let sets = [
        ("count", "world_size: 128\n", 0, "1006632960000 tokens"),
        ("launcher", "launcher:\n  gpus: 128\n", 0, ""),
        ("product", "launch:\n  nnodes: 16\n  nproc_per_node: 8\n", 0, ""),
        ("lightning", "trainer:\n  devices: 8\n  num_nodes: 16\n", 0, ""),
        ("nodes", "nodes: 16\n", 0, "nodes = 16 (the number of devices per node is not given)"),
        ("tasks", "slurm:\n  ntasks: 16\n", 0, "the number of devices per task is not given"),
        ("either", "nodes: 16\ngpus: 8\n", 0, "it is unclear whether that is per node or in total"),
        ("auto", "devices: auto\n", 0, "`devices` is auto (it is not a number from 1 on)"),
        ("two", "world_size: 64\nn_gpus: 128\n", 1, "`world_size` is 64, `n_gpus` is 128"),
        (
            "three",
            "num_gpus: 64\nslurm:\n  nodes: 16\n  gpus_per_node: 8\n",
            1,
            "`num_gpus` is 64, `slurm.nodes` is 16, `slurm.gpus_per_node` is 8",
        ),
    ];
    let texts: Vec<(String, String)> =
        sets.iter().map(|(name, keys, ..)| (format!("{name}.yaml"), file(keys))).collect();
    let files: Vec<(&str, &str)> = texts.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let dir = folder(&files);
    for (name, _, code, says) in sets {
        let ran = canonc(dir.path(), &["audit", &format!("{name}.yaml")]);
        assert_eq!(ran.code, code, "{name}: {}{}", ran.stdout, ran.stderr);
        let unread = ran.stdout.contains("devices-unread");
        let disagree = ran.stdout.contains("devices-disagree");
        let read = matches!(name, "count" | "launcher" | "product" | "lightning");
        assert_eq!((unread, disagree), (!read && code == 0, code == 1), "{name}: {}", ran.stdout);
        assert!(read || ran.stdout.contains(says), "{name}: {}", ran.stdout);
    }
}

/// A comparison's arms are the same experiments as their own locks.
#[test]
fn an_experiment_is_counted_once() {
    let lock = |name: &str| format!("lockfiles/{name}-1B-Nemo-1T-lr0.002.lock");
    let paths = [lock("GLA5conv"), lock("GLA5Canon"), lock("twin-GLA5")];
    let arguments: Vec<&str> =
        ["audit"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    let ran = canonc(&root(), &arguments);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    assert!(ran.stdout.contains("2 experiments, 1 pair, 1 of them clean"), "{}", ran.stdout);
}

const TABLE: &str = "\
model\toptim.lr\tsteps\tmodel.canon_set\tmy.flag\tdata.seq_len\tdata.batch_size\tgpus_from_comment
x-lr0.1\t0.1\t100\t\t1\t64\t8\t2
xcanon-lr0.1\t0.1\t100\tABCD\t2\t64\t8\t2
y-lr0.2\t0.1\t100\t\t1\t64\t8\t4
";

#[test]
fn a_table_and_rules_of_ones_own() {
    let rules = "\
off = [\"budget-in-comment\"]
[severity]
missing-twin = \"error\"
[[range]]
id = \"my-steps\"
of = \"budget.steps\"
min = 1000
severity = \"warning\"
why = \"Shorter runs have not settled.\"
help = \"train for 1000 steps\"
";
    let dir = folder(&[("runs.tsv", TABLE), ("mine.toml", rules)]);
    let ran = canonc(dir.path(), &["audit", "runs.tsv", "--rules", "mine.toml"]);
    insta::assert_snapshot!("audit_table", ran.text(dir.path()));
}

#[test]
fn curves_of_ones_own() {
    let mut table = String::from("model,data.seq_len\n");
    let mut curves = String::from("model,step,loss\n");
    for run in 0..5u64 {
        table += &format!("r{run},64\n");
        for step in 1..=120u64 {
            // Noise that all runs share, except run 4.
            let noise = |seed: u64| (seed.wrapping_mul(2_654_435_761) >> 8 & 1023) as f64 / 1e5;
            let shared = noise(if run == 4 { step * 31 + 7 } else { step });
            let run_noise = noise(step * 977 + run) / 100.0;
            let spike = if (run, step) == (1, 60) { 0.5 } else { 0.0 };
            let loss = 2.0 + 1.0 / step as f64 + shared + run_noise + spike + run as f64 * 0.01;
            curves += &format!("r{run},{step},{loss:.6}\n");
        }
    }
    let dir = folder(&[("runs.csv", &table), ("losses.csv", &curves)]);
    let ran = canonc(dir.path(), &["audit", "runs.csv", "--curves", "losses.csv"]);
    insta::assert_snapshot!("audit_curves", ran.text(dir.path()));
}

/// Twins as Lingua's recipes: the budget is only in a comment, and one has RoPE on a quarter of its heads.
const LINGUA: &str = "\
# 128 H200 GPUs
name: x
steps: 240000
grad_acc_steps: 1
seed: 777
model:
  dim: 2048
  n_heads: 32
  n_layers: 24
optim:
  lr: 0.002
  weight_decay: 0.02
  warmup: 8000
data:
  batch_size: 8
  seq_len: 4096
  sources:
    original_shuffled: 1.0
";

#[test]
fn recipes_of_lingua() {
    let canon = LINGUA
        .replace("  n_layers: 24\n", "  n_layers: 24\n  canon_set: ABCD\n  rope_dim: 16\n")
        .replace("128 H200", "256 H200");
    let dir = folder(&[
        ("old/llama-1B-1T-lr0.002.yaml", LINGUA),
        ("old/llamacanon-1B-1T-lr0.002.yaml", &canon),
    ]);
    let ran = canonc(dir.path(), &["audit", "old"]);
    insta::assert_snapshot!("audit_lingua", ran.text(dir.path()));
}

/// Recipes that canonc exported: their comment gives the devices, and files of one name have the names of their keys.
#[test]
fn exported_recipes_in_place() {
    let dir = folder(&[]);
    let names = ["GLA5conv-1B-Nemo-1T-lr0.002", "GLA5Canon-1B-Nemo-1T-lr0.002"];
    for name in names {
        let lock = root().join(format!("lockfiles/{name}.lock"));
        let ran = canonc(
            dir.path(),
            &["export", "--to", "lingua", lock.to_str().unwrap(), "--out", name],
        );
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
    let paths = names.map(|name| format!("{name}/recipe.yaml"));
    let ran = canonc(dir.path(), &["audit", &paths[0], &paths[1], "--json"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let pair = &json["pairs"][0];
    assert_eq!(
        (&pair["without"], &pair["with"], &pair["clean"]),
        (&names[0].into(), &names[1].into(), &true.into())
    );
    let rules: Vec<_> =
        json["findings"].as_array().unwrap().iter().map(|f| f["rule"].as_str().unwrap()).collect();
    assert_eq!(rules, ["budget-in-comment", "twin-cosmetic", "twin-cosmetic"]);
}

/// Comments either give the number of devices clearly, or are reported by line.
#[test]
fn comments_about_devices() {
    let with = |comment: &str| LINGUA.replace("# 128 H200 GPUs", comment);
    let canon =
        |text: String| text.replace("  n_layers: 24\n", "  n_layers: 24\n  canon_set: ABCD\n");
    let plain = with("# 16 nodes x 8 GPUs\n# A100-80GB");
    let doubt =
        with("# 2 GPUs were broken, so 126").replace("batch_size: 8", "batch_size: 8 # per GPU");
    let two = with("# 128 GPUs").replace("steps: 240000", "steps: 240000 # on 64 GPUs");
    let dir = folder(&[
        ("plain/llama-1T.yaml", &plain),
        ("plain/llamacanon-1T.yaml", &canon(with("# GPUs: 128"))),
        ("doubt/llama.yaml", &doubt),
        ("doubt/llamacanon.yaml", &canon(doubt.clone())),
        ("two/llama.yaml", &two),
        ("two/llamacanon.yaml", &canon(two.clone())),
        ("key/llama.yaml", &format!("{plain}distributed:\n  dp_shard: 8\n  dp_replicate: 4\n")),
    ]);
    for (set, code, says) in [
        ("plain", 0, &["1 pair, 1 of them clean", "128 devices in a comment"] as &[&str]),
        (
            "doubt",
            0,
            &[
                "1 pair, 0 of them clean",
                "devices-unread",
                "line 1: `# 2 GPUs were broken, so 126`",
            ],
        ),
        ("two", 1, &["devices-disagree", "line 1: 128 devices, line 3: 64 devices"]),
        ("key", 1, &["devices-disagree", "keys: 32 devices, line 1: 128 devices"]),
    ] {
        let ran = canonc(dir.path(), &["audit", set]);
        assert_eq!(ran.code, code, "{set}: {}{}", ran.stdout, ran.stderr);
        for text in says {
            assert!(ran.stdout.contains(text), "{set}: {text}: {}", ran.stdout);
        }
        assert_eq!(set == "plain", !ran.stdout.contains("devices-"), "{set}: {}", ran.stdout);
    }
}

#[test]
fn what_cannot_be_audited() {
    let dir = folder(&[
        ("runs.tsv", TABLE),
        ("empty.tsv", ""),
        ("short.tsv", "model\ta\nx\n"),
        ("twice.tsv", "model\tsteps\tbudget.steps\nx\t1\t2\n"),
        ("curves.csv", "model,x,loss\na,1,Infinity\n"),
        ("torn.gz", "\u{1f}"),
        (
            "rules.toml",
            "of = [\"twin-kernel\"]\n[[range]]\nid = \"a\"\nof = \"optim.lr\"\nmin = 1\n",
        ),
        ("key.toml", "[[range]]\nid = \"a\"\nof = \"optimizer.lrr\"\nmin = 1\n"),
        ("run.yaml", "steps: 1\nsteps: 2\n"),
        ("run.json", "{}"),
        ("none/x.txt", ""),
    ]);
    let mut text = String::new();
    for arguments in [
        &["audit"] as &[&str],
        &["audit", "nothere.tsv"],
        &["audit", "nothere"],
        &["audit", "empty.tsv"],
        &["audit", "short.tsv"],
        &["audit", "twice.tsv"],
        &["audit", "none"],
        &["audit", "run.yaml"],
        &["audit", "run.json"],
        &["audit", "rules.toml"],
        &["audit", "runs.tsv", "--curves", "curves.csv"],
        &["audit", "runs.tsv", "--curves", "torn.gz"],
        &["audit", "runs.tsv", "--rules", "rules.toml"],
        &["audit", "runs.tsv", "--rules", "key.toml"],
        &["audit", "--list", "--json"],
    ] {
        let ran = canonc(dir.path(), arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.stderr);
        text += &format!("$ canonc {}\n{}", arguments.join(" "), ran.text(dir.path()));
    }
    insta::assert_snapshot!("audit_bad_input", text);
}

/// A log that transformers wrote, of a run of 60 steps.
#[test]
fn a_log_is_held_against_its_lock() {
    let of =
        |schedule: &str| recipe("small", "").replace("warmup = 10", schedule).replace("100", "60");
    let dir =
        locked(&[("own", of("warmup = 10, lr_min_ratio = 0.0")), ("usual", of("warmup = 10"))]);
    let log = root().join("ext/logs/tests/logs/trainer_state.json");
    std::fs::copy(log, dir.path().join("trainer_state.json")).unwrap();
    let state = "trainer_state.json";
    let ran = canonc(dir.path(), &["audit", "lockfiles/own.lock", "--log", state]);
    insta::assert_snapshot!("audit_log", ran.text(dir.path()));
    let other = format!("lockfiles/usual.lock={state}");
    let ran = canonc(dir.path(), &["audit", "--log", &other]);
    insta::assert_snapshot!("audit_log_of_another_lock", ran.text(dir.path()));
    let ran = canonc(dir.path(), &["audit", "lockfiles", "--log", &other, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &json["experiments"]), (1, &2.into()));
    assert_eq!(json["findings"][0]["places"][0]["experiment"], "usual");
    let log = &json["logs"][0];
    assert_eq!((&log["program"], &log["on_trust"]), (&"transformers".into(), &true.into()));
    assert_eq!(log["learning_rates"], serde_json::json!({"compared": 8, "differing": 7}));
    // A rules file switches these rules off like others.
    std::fs::write(dir.path().join("rules.toml"), "off = [\"log-rate\"]\n").unwrap();
    let ran = canonc(dir.path(), &["audit", "--log", &other, "--rules", "rules.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
}
