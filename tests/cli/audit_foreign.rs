//! `canonc audit` of other trainers' files: launches, results, formats, charts, and what a lock declares.

use std::path::Path;

use super::super::{Ran, canonc, folder};

const RUN: &str = "\
steps: 240000
seed: 777
world_size: 128
model:
  dim: 2048
  n_heads: 32
  n_layers: 24
optim:
  lr: 0.003
data:
  root_dir: /data
  batch_size: 8
  seq_len: 4096
";

fn audit(dir: &Path, arguments: &[&str]) -> Ran {
    canonc(dir, &[&["audit"], arguments].concat())
}

/// A key of a launch that chooses code, libraries, data, hosts or devices is a confound. Names, limits, logs and copies
/// are not.
#[test]
fn keys_of_a_launch_that_choose_what_runs_are_confounds() {
    let cases = [
        ("env", "PYTHONPATH: /code/a", "PYTHONPATH: /code/b", 1),
        ("slurm", "container_image: pytorch:23.05", "container_image: pytorch:25.01", 1),
        ("slurm", "docker_image: a", "docker_image: b", 1),
        ("stool", "anaconda: /envs/a", "anaconda: /envs/b", 1),
        ("launch", "conda_env: a", "conda_env: b", 1),
        ("launch", "venv: a", "venv: b", 1),
        ("slurm", "container_mounts: /lake/v1:/data", "container_mounts: /lake/v2:/data", 1),
        ("launch", "file_mounts: {/data: s3://a}", "file_mounts: {/data: s3://b}", 1),
        ("slurm", "chdir: /home/a", "chdir: /home/b", 1),
        ("launch", "extra: --optim.lr=0.1", "extra: \"\"", 1),
        ("launch", "mode: train", "mode: finetune", 1),
        ("launch", "features: fp8", "features: bf16", 1),
        ("slurm", "partition: a100", "partition: h100", 1),
        ("launch", "hosts: 2", "hosts: 4", 1),
        ("slurm", "queue: a100", "queue: h100", 1),
        ("slurm", "reservation: four", "reservation: eight", 1),
        ("slurm", "nodelist: n[1-16]", "nodelist: n[1-8]", 1),
        ("slurm", "dump_dir: /a", "dump_dir: /b", 1),
        ("slurm", "copy_code: true", "copy_code: false", 0),
        ("slurm", "array_parallelism: 4", "array_parallelism: 8", 0),
        ("slurm", "account: a", "account: b", 0),
        ("slurm", "job_name: a", "job_name: b", 0),
        ("slurm", "time: 100", "time: 200", 0),
        ("slurm", "mem: 0", "mem: 100G", 0),
        ("slurm", "mail_user: a", "mail_user: b", 0),
        ("slurm", "output: a.log", "output: b.log", 0),
        ("env", "NCCL_DEBUG: INFO", "NCCL_DEBUG: WARN", 0),
        ("env", "OMP_NUM_THREADS: 1", "OMP_NUM_THREADS: 8", 0),
    ];
    let mut files = Vec::new();
    for (at, (section, one, other, _)) in cases.iter().enumerate() {
        let with = |keys: &str| format!("{RUN}{section}:\n  {keys}\n");
        let canon = with(other).replace("  dim:", "  canon_set: ABCD\n  dim:");
        files.push((format!("c{at}/Llama.yaml"), with(one)));
        files.push((format!("c{at}/LlamaCanon.yaml"), canon));
    }
    // The devices that processes see are all that says how many there are.
    let alone = RUN.replace("world_size: 128\n", "");
    let seen = |devices: &str| format!("{alone}env:\n  CUDA_VISIBLE_DEVICES: {devices}\n");
    files.push(("seen/Llama.yaml".to_owned(), seen("0,1,2,3")));
    let canon = seen("0,1,2,3,4,5,6,7").replace("  dim:", "  canon_set: ABCD\n  dim:");
    files.push(("seen/LlamaCanon.yaml".to_owned(), canon));
    let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let dir = folder(&files);
    for (at, (section, one, other, code)) in cases.iter().enumerate() {
        let ran = audit(dir.path(), &[&format!("c{at}")]);
        assert_eq!(ran.code, *code, "{section} {one} | {other}: {}{}", ran.stdout, ran.stderr);
        let clean = ran.stdout.contains("1 pair, 1 of them clean");
        assert_eq!(clean, *code == 0, "{section} {one}: {}", ran.stdout);
    }
    let ran = audit(dir.path(), &["seen"]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stdout.contains("twin-budget"), "{}", ran.stdout);
}

/// A pair in each format; the arm with Canon layers has this learning rate, and the other one 1e-3.
fn pair_in_each_format(lr: &str) -> Vec<(String, String)> {
    let yaml = |lr: &str, canon: &str| {
        format!(
            "model_type: llama\nhidden_size: 64\nnum_hidden_layers: 2\nlearning_rate: {lr}\nreport_to: none\n{canon}"
        )
    };
    let toml = |lr: &str, canon: &str| {
        format!(
            "model_type = \"llama\"\nhidden_size = 64\nnum_hidden_layers = 2\nlearning_rate = {lr}\n{canon}"
        )
    };
    let json = |name: &str, lr: &str, canon: &str| {
        format!(
            "{{\"name\": \"{name}\", \"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"learning_rate\": {lr}, \"canon_set\": \"{canon}\", \"eval_loss\": 2.31}}"
        )
    };
    let rows = |separator: &str| {
        let row = |cells: [&str; 6]| cells.join(separator);
        [
            row(["name", "model_type", "hidden_size", "learning_rate", "canon_set", "note"]),
            row(["run", "llama", "64", "1e-3", "", "\"two\nlines\""]),
            row(["run_canon", "llama", "64", lr, "ABCD", "x"]),
        ]
        .join("\n")
    };
    vec![
        ("yaml/run.yaml".to_owned(), yaml("1e-3", "")),
        ("yaml/run_canon.yml".to_owned(), yaml(lr, "canon_set: ABCD\n")),
        ("toml/run.toml".to_owned(), toml("1e-3", "")),
        ("toml/run_canon.toml".to_owned(), toml(lr, "canon_set = \"ABCD\"\n")),
        ("json/run.json".to_owned(), json("a", "1e-3", "")),
        ("json/run_canon.json".to_owned(), json("b", lr, "ABCD")),
        (
            "list/runs.json".to_owned(),
            format!("[{},\n{}]", json("run", "1e-3", ""), json("run_canon", lr, "ABCD")),
        ),
        (
            "lines/runs.jsonl".to_owned(),
            format!("{}\n{}\n", json("run", "1e-3", ""), json("run_canon", lr, "ABCD")),
        ),
        ("comma/runs.csv".to_owned(), rows(",")),
        ("semicolon/runs.csv".to_owned(), rows(";")),
        (
            "markdown/runs.md".to_owned(),
            format!(
                "# Runs\n\n| name | hidden_size | `learning_rate` | num_hidden_layers | canon_set |\n|---|---:|---|---|---|\n| run | 64 | 1e-3 | 2 | |\n| **run_canon** | 64 | {lr} | 2 | ABCD |\n"
            ),
        ),
    ]
}

/// One pair in each format, with a harmless difference, and with another learning rate.
#[test]
fn every_format_gives_the_same_answer() {
    for (lr, code, clean) in [("0.001", 0, 1), ("0.002", 1, 0)] {
        let files = pair_in_each_format(lr);
        let named: Vec<(&str, &str)> =
            files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        let dir = folder(&named);
        let mut folders: Vec<&str> =
            named.iter().filter_map(|(p, _)| p.split('/').next()).collect();
        folders.dedup();
        for format in folders {
            let ran = audit(dir.path(), &[format]);
            assert_eq!(ran.code, code, "{format}: {}{}", ran.stdout, ran.stderr);
            let says = format!("2 experiments, 1 pair, {clean} of them clean");
            assert!(ran.stdout.contains(&says), "{format}: {}", ran.stdout);
            assert!(ran.stdout.contains("keys read as transformers"), "{format}: {}", ran.stdout);
        }
    }
}

/// A file that Hydra composes: no default of Lingua, and interpolation as it is written.
#[test]
fn a_hydra_file_keeps_its_own_words() {
    let hydra = "defaults:\n  - model: small\nmodel:\n  layers: 12\n  width: 768\noptimizer:\n  lr: 3e-4\ntrainer:\n  dir: ${hydra:runtime.cwd}/x\n  amp: on\n";
    let narrow = hydra.replace("width: 768", "width: 512");
    let dir = folder(&[("a.yaml", hydra), ("b.yaml", &narrow)]);
    let ran = audit(dir.path(), &["a.yaml", "b.yaml"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    insta::assert_snapshot!("audit_hydra", ran.text(dir.path()));
    // Nor where its section has the name of one of ours.
    let arch = folder(&[
        ("a.yaml", &hydra.replace("model:\n", "arch:\n")),
        ("b.yaml", &narrow.replace("model:\n", "arch:\n")),
    ]);
    let named = audit(arch.path(), &["a.yaml", "b.yaml", "--json"]);
    assert_eq!(named.code, 0, "{}{}", named.stdout, named.stderr);
    for invented in ["512M", "arch.layers", "arch.dim"] {
        assert!(!named.stdout.contains(invented), "{invented}: {}", named.stdout);
    }
    let ran = audit(dir.path(), &["a.yaml", "--as", "nobody"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("torchtitan"), "{}", ran.stderr);
}

#[test]
fn equal_columns_and_results_leave_a_pair_clean() {
    let dir = folder(&[
        (
            "runs.csv",
            "name,canon_set,optim.lr,steps,status\nllama,,0.003,1000,finished\nllama-canon,ABCD,0.003,1000,finished\n",
        ),
        (
            "results.csv",
            "name,canon_set,model.dim,optim.lr,steps,eval_loss,Runtime,State,Created\nllama,,1024,0.003,1000,2.31,3600,finished,2024-01-01\nllama-canon,ABCD,1024,0.003,1000,2.29,3700,finished,2024-01-02\n",
        ),
    ]);
    let mut text = String::new();
    for table in ["runs.csv", "results.csv"] {
        let ran = audit(dir.path(), &[table]);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        text += &format!("$ canonc audit {table}\n{}", ran.text(dir.path()));
    }
    insta::assert_snapshot!("audit_results", text);
}

/// A weight of a loss, a share of data and the length of a run are named like results.
#[test]
fn settings_that_are_named_like_results_are_compared() {
    let yaml =
        |kd: &str| format!("model:\n  width: 64\ntrain:\n  loss:\n    kd: {kd}\n    lm: 1.0\n");
    let table = |column: &str, cells: [&str; 2]| {
        format!("name,canon_set,{column}\nllama,,{}\nllama-canon,ABCD,{}\n", cells[0], cells[1])
    };
    let canon = format!("canon_set: ABCD\n{}", yaml("0.1"));
    let dir = folder(&[
        ("kd/llama.yaml", &yaml("0.5")),
        ("kd/llama-canon.yaml", &canon),
        ("equal/llama.yaml", &yaml("0.1")),
        ("equal/llama-canon.yaml", &canon),
        ("share.csv", &table("wikitext_share", ["0.1", "0.4"])),
        ("epoch.csv", &table("epoch", ["1", "3"])),
        ("score.csv", &table("wikitext_ppl", ["11.2", "10.9"])),
        ("stem.csv", &table("mmlu_stem", ["0.31", "0.33"])),
    ]);
    for (path, code, key) in [
        ("kd", 1, "train.loss.kd"),
        ("equal", 0, ""),
        ("share.csv", 1, "wikitext_share"),
        ("epoch.csv", 1, "epoch"),
        ("score.csv", 0, ""),
        ("stem.csv", 0, ""),
    ] {
        let ran = audit(dir.path(), &[path]);
        assert_eq!(ran.code, code, "{path}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(key), "{path}: {}", ran.stdout);
    }
}

/// Names that look like numbers, columns without a name, and what W&B writes beside the settings.
#[test]
fn tables_of_other_people_are_judged_by_what_their_columns_are() {
    let head = "name,canon_set,learning_rate,per_device_train_batch_size,num_train_epochs";
    let rows = |column: &str, plain: &str, canon: &str| {
        format!("{head},{column}\ngpt,,1e-3,8,3,{plain}\ngpt-canon,ABCD,0.001,8,3,{canon}\n")
    };
    for (column, plain, canon, code) in [
        ("torch", "2.1", "2.10", 1),
        ("commit", "12e5", "1200000", 1),
        ("dataset_version", "1.1", "1.10", 1),
        ("image", "23.10", "23.1", 1),
        ("dataset", "0123", "123", 1),
        ("warmup_ratio", "0.10", "0.1", 0),
        ("State", "finished", "finished", 0),
        ("State", "finished", "crashed", 1),
        ("State", "finished", "running", 1),
        ("_step", "1000", "110", 1),
        ("train/global_step", "1000", "1000", 0),
        ("train/grad_norm", "0.512", "0.498", 0),
        ("train/total_flos", "1.2e15", "1.22e15", 0),
        ("model/num_parameters", "124439808", "124500000", 0),
        ("Params", "124M", "125M", 0),
        ("perf/tokens_per_sec", "100", "120", 0),
        ("bits_per_byte", "1.01", "0.99", 0),
        ("\"lm_eval/hellaswag/acc_norm,none\"", "0.31", "0.33", 0),
        ("accuracy (%)", "31", "33", 0),
        ("Created", "2025-11-01T10:00:00.000Z", "2025-11-02T10:00:00.000Z", 0),
        ("Runtime", "3600", "3700", 0),
        ("Relative Time (Process)", "3600", "3700", 0),
        ("User", "ada", "alan", 0),
        ("Sweep", "", "x1y2", 0),
        ("Tags", "first", "\"second, third\"", 0),
        ("Notes", "-", "again", 0),
        ("", "", "", 0),
        ("", "0", "1", 0),
        ("Unnamed: 0", "0", "1", 0),
        ("", "adam", "sgd", 2),
    ] {
        let dir = folder(&[("runs.csv", &rows(column, plain, canon))]);
        let ran = audit(dir.path(), &["runs.csv"]);
        let context = format!("{column}: {plain} | {canon}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code, code, "{context}");
    }
}

/// The table of runs as W&B exports it: quoted, with `Name` and its own columns.
#[test]
fn an_export_of_wandb_is_audited() {
    let head =
        "\"Name\",\"State\",\"Created\",\"Runtime\",\"optim.lr\",\"model.canon_set\",\"Notes\"\n";
    let rows = "\"plain\",\"finished\",\"2025-11-01\",\"3600\",\"0.0001\",\"\",\"-\"\n\
                \"canon\",\"finished\",\"2025-11-02\",\"3601\",\"0.0003\",\"ABCD\",\"-\"\n";
    let nameless = head.replace("Name", "Label") + rows;
    let dir = folder(&[("runs.csv", &(head.to_owned() + rows)), ("other.csv", &nameless)]);
    let ran = audit(dir.path(), &["runs.csv"]);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("results, not compared: Created, Notes, Runtime, State"));
    assert!(ran.stdout.contains("optimizer.lr: 0.0001 without arch.canon, 0.0003 with it"));
    let ran = audit(dir.path(), &["other.csv"]);
    assert_eq!(ran.code, 2, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("the columns are `Label`, `State`, `Created`"), "{}", ran.stderr);
}

/// Lists, keys with dots and words for true, as JSON and YAML have them.
#[test]
fn values_of_configurations_are_compared_as_they_are() {
    let json = |more: &str| format!("{{\"hidden_size\": 64, \"num_hidden_layers\": 2, {more}}}");
    let yaml =
        |more: &str| format!("learning_rate: 1e-3\nper_device_train_batch_size: 8\n{more}\n");
    for (end, one, other, code) in [
        ("json", "\"layer_types\": [\"a,b\"]", "\"layer_types\": [\"a\", \"b\"]", 1),
        ("json", "\"betas\": [0.9, 0.95]", "\"betas\": [0.9, 0.950]", 0),
        (
            "json",
            "\"rope_scaling.factor\": 4, \"rope_scaling\": {\"factor\": 1}",
            "\"rope_scaling\": {\"factor\": 1}",
            2,
        ),
        ("yaml", "bf16: yes", "bf16: true", 0),
        ("yaml", "seed: 010", "seed: 10", 1),
        ("yaml", "hydra:\n  run:\n    dir: outputs/a", "hydra:\n  run:\n    dir: outputs/b", 0),
    ] {
        let canon = match end {
            "json" => json(&format!("\"canon_set\": \"ABCD\", {other}")),
            _ => yaml(&format!("canon_set: ABCD\n{other}")),
        };
        let plain = if end == "json" { json(one) } else { yaml(one) };
        let names = [format!("gpt.{end}"), format!("gpt-canon.{end}")];
        let dir = folder(&[(&names[0], &plain), (&names[1], &canon)]);
        let ran = audit(dir.path(), &[&names[0], &names[1]]);
        assert_eq!(ran.code, code, "{one} | {other}: {}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn a_rules_file_names_keys_that_are_there() {
    let table = "name,canon_set,learning_rate,my.flag\ngpt,,1e-3,1\ngpt-canon,ABCD,1e-3,1\n";
    let dir = folder(&[
        ("runs.csv", table),
        ("right.toml", "[keys]\n\"my.flag\" = \"training\"\n"),
        ("wrong.toml", "[keys]\n\"my.flga\" = \"training\"\n"),
    ]);
    assert_eq!(audit(dir.path(), &["runs.csv", "--rules", "right.toml"]).code, 0);
    let ran = audit(dir.path(), &["runs.csv", "--rules", "wrong.toml"]);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    assert!(ran.stderr.contains("did you mean `my.flag`"), "{}", ran.stderr);
}

/// Curves that belong to nothing, and a chart without steps, are no reason to say that nothing was found.
#[test]
fn curves_without_an_experiment_or_steps_are_errors() {
    let dir = folder(&[
        ("runs.csv", "name,canon_set\nllama,\nllama-canon,ABCD\n"),
        ("other.csv", "model,step,loss\ngpt,1,2.0\ngpt,2,1.9\n"),
        ("chart.csv", "\"llama - loss\",\"llama-canon - loss\"\n\"2.0\",\"1.9\"\n"),
        ("three.csv", "model,time,loss\nllama,1,2.0\n"),
        (
            "good.csv",
            "\"Step\",\"llama - loss\",\"llama - loss__MIN\",\"llama-canon - loss\"\n1,2.0,1.0,1.9\n2,1.9,1.0,1.8\n",
        ),
    ]);
    for (curves, says) in [
        ("other.csv", "no curve belongs to an experiment: the curves are of `gpt`"),
        ("chart.csv", "no column gives the run or the step"),
        ("three.csv", "no column gives the step; the columns are model, time, loss"),
    ] {
        let ran = audit(dir.path(), &["runs.csv", "--curves", curves]);
        assert_eq!(ran.code, 2, "{curves}: {}", ran.stdout);
        assert!(ran.stderr.contains(says), "{curves}: {}", ran.stderr);
    }
    assert_eq!(audit(dir.path(), &["runs.csv", "--curves", "good.csv"]).code, 0);
    let more = std::fs::read_to_string(dir.path().join("good.csv")).unwrap();
    let more = more.replace("\"llama-canon - loss\"", "\"gpt - loss\"");
    std::fs::write(dir.path().join("more.csv"), more).unwrap();
    let ran = audit(dir.path(), &["runs.csv", "--curves", "more.csv"]);
    assert!(ran.stderr.contains("no experiment is called `gpt`"), "{}", ran.stderr);
}

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
arch narrowcanon = smallcanon with { mlp.hidden 14 }
";

fn recipe(arch: &str, task: &str) -> String {
    format!(
        "arch = \"../arch/small.canon#{arch}\"\ndata = {{ {task}, seq_len = 64, ids = \"dense\" }}\n\
         batch = {{ sequences = 4 }}\noptimizer = {{ lr = 0.003, weight_decay = 0.1 }}\n\
         schedule = {{ kind = \"cosine\", warmup = 10 }}\nbudget = {{ steps = 100 }}\nseeds = {{ init = 1, data = 1 }}\n"
    )
}

const DEPO: &str = "task = \"depo\", depo.N = 6, depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2";
const MANO: &str = "task = \"mano\", mano.L = 10";

/// A comparison's lock says what its arms are meant to differ in.
#[test]
fn what_a_lock_declares_is_judged_as_declared() {
    let pair = "base = \"small\"\ntreatment = [\"canon\", \"mlp.hidden\"]\n[arms]\nsmall = \"small.toml\"\nnarrowcanon = \"narrowcanon.toml\"\n[seeds]\ninit = [1]\ndata = [1]\n";
    let (small, narrow) = (recipe("small", DEPO), recipe("narrowcanon", DEPO));
    let dir = folder(&[
        ("arch/small.canon", ARCHS),
        ("recipes/small.toml", &small),
        ("recipes/narrowcanon.toml", &narrow),
        ("recipes/pair.toml", pair),
    ]);
    let ran = canonc(dir.path(), &["build", "recipes/pair.toml"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    for path in ["lockfiles", "lockfiles/pair.lock"] {
        let ran = audit(dir.path(), &[path]);
        assert_eq!(ran.code, 0, "{path}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("2 experiments, 1 pair, 1 of them clean"), "{}", ran.stdout);
        assert!(!ran.stdout.contains("no pairs"), "{}", ran.stdout);
    }
}

#[test]
fn locks_that_share_neither_data_nor_name_are_no_twins() {
    let (depo, mano) = (recipe("small", DEPO), recipe("smallcanon", MANO));
    let dir = folder(&[
        ("arch/small.canon", ARCHS),
        ("recipes/first.toml", &depo),
        ("recipes/second.toml", &mano),
    ]);
    let ran = canonc(dir.path(), &["build", "recipes/first.toml", "recipes/second.toml"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let ran = audit(dir.path(), &["lockfiles"]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    assert!(
        ran.stdout.contains("no two of them share data or a word of their names"),
        "{}",
        ran.stdout
    );
}
