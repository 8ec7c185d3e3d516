//! The release's 64 experiments as locks: every key of the release, and every number that follows.

use std::collections::{BTreeMap, BTreeSet};

use dsl::Decimal;
use lab::experiment::Experiment;
use lab::field::FieldValue;
use lab::lock::{Lock, read};

use support::programs;

type Row = BTreeMap<String, String>;

fn table(path: &str) -> Vec<Row> {
    let text = programs::read(path);
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split('\t').collect();
    let row = |line: &str| {
        let cells = line.split('\t').map(str::to_owned);
        head.iter().map(|name| (*name).to_owned()).zip(cells).collect()
    };
    lines.map(row).collect()
}

fn published() -> Vec<(Row, Experiment)> {
    let locked = |row: Row| {
        let name = format!("lockfiles/{}.lock", row["model"]);
        match read(&name, &programs::read(&name)).unwrap() {
            Lock::Experiment(experiment) => (row, experiment),
            Lock::Arch(_) | Lock::Comparison(_) => panic!("{name}"),
        }
    };
    table("recipes/published/data/recipes.tsv").into_iter().map(locked).collect()
}

/// The value here of a key of the release, in the release's words; empty if it only repeats the default.
fn ours(key: &str, experiment: &Experiment, published: &str) -> String {
    let field = |path: &str| experiment.value(path).map_or_else(String::new, FieldValue::plain);
    let truth = |is: bool| if is { "True" } else { "False" }.to_owned();
    let absent_or = |said: bool, word: &str| if said { word.to_owned() } else { String::new() };
    let lingua = |name: &str| match experiment.value(&format!("lingua.{name}")) {
        Some(FieldValue::Bool(is)) => truth(*is),
        Some(value) => value.plain(),
        None => panic!("lingua.{name}"),
    };
    let arch = |path: &str| {
        let fields = &experiment.arch.compiled.fields;
        let field = fields.iter().find(|field| field.path == path);
        field.map_or_else(String::new, |field| field.value.clone())
    };
    let mixer = |path: &str| arch(&format!("layers.0.mixer.{path}"));
    let real = |text: &str| Decimal::parse(text).unwrap().to_string();
    let kind = arch("layers.0.mixer");
    match key {
        "steps" => field("budget.steps"),
        // Here micro-batches include those of all devices: one per device.
        "grad_acc_steps" => {
            let devices = u64::from(experiment.platform.devices.unwrap());
            (experiment.batch.micro_batches / devices).to_string()
        }
        "seed" => lingua("seed"),
        "model.canon_set" => {
            let canon = |slot: &&str| arch(&format!("layers.0.slots.{slot}")) == "canon";
            let slots: Vec<&str> = ["A", "B", "C", "D"].into_iter().filter(canon).collect();
            // `bb` is the release's word for the mixer's own convolution; Llama has none.
            let own = if mixer("short_conv") == "true" { "bb" } else { "" };
            let (before, after) = slots.split_at(slots.len().min(1));
            if own.is_empty() {
                slots.concat()
            } else {
                format!("{}{own}{}", before.concat(), after.concat())
            }
        }
        "model.dim" => arch("dim"),
        "model.ffn_dim_multiplier" | "model.multiple_of" => {
            // Written, although a width overrides it.
            let said = if key.ends_with("of") { "multiple_of" } else { "multiplier" };
            let ours = arch(&format!("layers.0.mlp.{said}"));
            absent_or(
                !published.is_empty(),
                &if said == "multiplier" { format!("{ours}.0") } else { ours },
            )
        }
        "model.hidden_dim" => absent_or(!published.is_empty(), &arch("layers.0.mlp.hidden")),
        "model.mamba_ssm" => mixer("state"),
        "model.mlp_type" => absent_or(kind == "mamba2", "mlp10"),
        "model.model_name" => match kind.as_str() {
            "gla" => "GLA5",
            "gated_deltanet" => "GDN2",
            "mamba2" => "Mamba2",
            _ => "",
        }
        .to_owned(),
        "model.n_heads" => mixer("heads"),
        "model.n_kv_heads" => absent_or(mixer("kv_heads") != mixer("heads"), &mixer("kv_heads")),
        "model.n_layers" => arch("layers"),
        "model.qk_norm" => absent_or(mixer("qk_norm") == "true", "True"),
        "model.rope_dim" => absent_or(mixer("rope.dims") != mixer("head_dim"), &mixer("rope.dims")),
        "model.rope_theta" => absent_or(mixer("rope.theta") != "10000", &mixer("rope.theta")),
        "model.z_loss" => {
            let nll = field("loss.nll_square");
            assert!(nll == "0" || nll == "0.0001", "{nll}");
            absent_or(nll != "0", "True")
        }
        "model.zeyuan_layernorm" => {
            absent_or(field("platform.kernels.gated_norm") == "reference", "True")
        }
        "optim.lr" => field("optimizer.lr"),
        "optim.weight_decay" => field("optimizer.weight_decay"),
        "optim.warmup" => field("schedule.warmup"),
        "optim.lr_min_ratio" => field("schedule.lr_min_ratio"),
        "optim.epsilon" => {
            assert_eq!(real(published), field("optimizer.eps"));
            published.to_owned()
        }
        "optim.beta1" | "optim.beta2" => {
            let Some(FieldValue::List(betas)) = experiment.value("optimizer.betas") else {
                panic!()
            };
            betas[usize::from(key.ends_with('2'))].plain()
        }
        "optim.clip" => field("optimizer.clip"),
        "optim.scheduler" => field("schedule.kind"),
        "data.root_dir" => lingua("root_dir"),
        "data.batch_size" => field("batch.sequences"),
        "data.prefetch_size" => {
            // The release shuffled a buffer of this many batches per rank, and its locks have the
            // key.
            assert_eq!(field("data.shuffle"), "buffer");
            let number = |path: &str| field(path).parse::<u64>().unwrap();
            let held = number("lingua.prefetch_size") * number("batch.sequences");
            assert_eq!(number("data.shuffle_buffer"), held);
            lingua("prefetch_size")
        }
        "data.seq_len" => field("data.seq_len"),
        // Inputs, and the next tokens as targets: training here always has these two.
        "data.n_views" => "2".to_owned(),
        "data.load_async" => lingua("load_async"),
        "data.add_bos" => truth(field("data.add_bos") == "true"),
        "data.add_eos" => truth(field("data.add_eos") == "true"),
        "data.tokenizer.name" => match field("data.tokenizer").as_str() {
            "sentencepiece" => "sp".to_owned(),
            other => other.to_owned(),
        },
        "data.tokenizer.path" => lingua("tokenizer_path"),
        "probe_freq" => absent_or(lingua("probe_freq") != "never", &lingua("probe_freq")),
        "logging.freq" => field("log.every"),
        "distributed.fsdp_type" => lingua("fsdp_type"),
        "distributed.compile" => lingua("compile"),
        "distributed.model_dtype" => field("precision.policy"),
        "distributed.matmul_allow_tf32" => lingua("matmul_allow_tf32"),
        "distributed.selective_activation_checkpointing" => {
            truth(field("platform.recompute") != "nothing")
        }
        // Tensors are never split here.
        "distributed.tp_size" => "1".to_owned(),
        "profiling.run" => lingua("profiling"),
        "checkpoint.dump.every" => field("checkpoint.every"),
        "checkpoint.dump.keep" => field("checkpoint.keep"),
        "checkpoint.eval.every" => field("evaluation.every"),
        "checkpoint.eval.keep" => lingua("eval_keep"),
        "checkpoint.read_s3" => absent_or(lingua("read_s3") == "True", "True"),
        "async_eval_gpus" => lingua("async_eval_gpus"),
        "eval.harness.tasks" => {
            let Some(FieldValue::List(tasks)) = experiment.value("lingua.harness_tasks") else {
                panic!()
            };
            tasks.iter().map(FieldValue::plain).collect::<Vec<_>>().join(",")
        }
        "eval.harness.log_samples" => lingua("log_samples"),
        // Present, and empty.
        "eval.validation" => String::new(),
        "eval.generator.max_tokens" => lingua("generator_max_tokens"),
        "eval.generator.dtype" => lingua("generator_dtype"),
        "eval.generator.show_progress" => lingua("show_progress"),
        "eval.save_s3" => absent_or(lingua("save_s3") == "True", "True"),
        "eval.save_consolidated_to_local" => {
            absent_or(lingua("save_consolidated_to_local") == "False", "False")
        }
        _ => panic!("`{key}` of the release has no counterpart"),
    }
}

#[test]
fn every_key_of_every_published_recipe_is_in_its_lock() {
    let head = programs::read("recipes/published/data/recipes.tsv");
    let keys: Vec<&str> = head.lines().next().unwrap().split('\t').collect();
    let first = keys.iter().position(|key| *key == "steps").unwrap();
    let all = published();
    assert_eq!(all.len(), 64);
    for (row, experiment) in &all {
        for key in &keys[first..] {
            let published = row.get(*key).map_or("", String::as_str);
            assert_eq!(ours(key, experiment, published), published, "{}: {key}", row["model"]);
        }
    }
    let ids: BTreeSet<_> = all.iter().map(|(_, experiment)| experiment.id()).collect();
    assert_eq!(ids.len(), 64);
}

#[test]
fn derived_values_are_as_published() {
    let counts = table("tests/golden/param_counts.tsv");
    for (row, experiment) in published() {
        let name = &row["model"];
        let value = |path: &str| experiment.value(path).unwrap().plain();
        assert_eq!(value("batch.tokens_per_step"), row["tokens_per_step"], "{name}");
        assert_eq!(value("budget.tokens"), row["tokens_total"], "{name}");
        assert_eq!(experiment.platform.devices.unwrap().to_string(), row["gpus_from_comment"]);
        let product = Decimal::parse(&value("optimizer.lr_wd_steps")).unwrap().to_f64();
        let said: f64 = row["lr_x_wd_x_steps"].parse().unwrap();
        assert!((product - said).abs() < 0.006, "{name}: {product} {said}");
        let share = match experiment.value("schedule.warmup_share").unwrap() {
            FieldValue::Real(share) => share.to_f64(),
            FieldValue::Text(third) => {
                let (over, under) = third.split_once('/').unwrap();
                over.parse::<f64>().unwrap() / under.parse::<f64>().unwrap()
            }
            other @ (FieldValue::Int(_)
            | FieldValue::Big(_)
            | FieldValue::Bool(_)
            | FieldValue::List(_)) => {
                panic!("{other}")
            }
        };
        let said: f64 = row["warmup_frac"].parse().unwrap();
        assert!((share - said).abs() < 1e-5, "{name}: {share} {said}");
        let count = counts.iter().find(|count| count["recipe"] == *name).unwrap();
        assert_eq!(value("arch.parameters"), count["total_params"], "{name}");
        assert_eq!(value("arch.non_embedding"), count["non_embedding_params"], "{name}");
        // An open lock: only the release has its data.
        assert_eq!(experiment.open_inputs().len(), 2, "{name}");
    }
}

#[test]
fn every_twin_is_locked_with_its_verdict() {
    let (mut single, mut bundles) = (0, 0);
    for row in table("recipes/published/data/recipes.tsv") {
        if row["canon"] == "1" {
            continue;
        }
        let (family, rest) = row["model"].split_once('-').unwrap();
        let name = format!("lockfiles/twin-{}-{rest}.lock", family.trim_end_matches("conv"));
        let Lock::Comparison(twin) = read(&name, &programs::read(&name)).unwrap() else {
            panic!("{name}")
        };
        let verdict = &twin.verdicts["canon"];
        match twin.treatment["canon"].as_slice() {
            [canon] if canon == "canon" => single += 1,
            [canon, rope] if canon == "canon" && rope == "rope.dims" => bundles += 1,
            other => panic!("{name}: {other:?}"),
        }
        assert!(verdict.headline().ends_with("data assumed equal by name"), "{name}");
        // The arms are the published experiments, apart from the name of the comparison.
        let arm = twin.arms.iter().find(|arm| arm.name == "base").unwrap();
        let own = format!("lockfiles/{}.lock", row["model"]);
        let Lock::Experiment(own) = read(&own, &programs::read(&own)).unwrap() else {
            panic!("{own}")
        };
        assert_eq!(arm.experiment.digests, own.digests, "{name}");
        let kernel = |change: &&lab::verdict::Change| change.path.contains("gated_norm");
        let differs = verdict.platform.iter().any(|change| kernel(&change));
        assert_eq!(differs, name.contains("GLA5-3B-Nemo-1T-lr0.005"), "{name}");
    }
    assert_eq!((single, bundles), (24, 8));
}
