//! The release's 64 experiments as locks: every key of the release, and every number that follows.

use std::collections::{BTreeMap, BTreeSet};

use dsl::Decimal;
use lab::experiment::Experiment;
use lab::field::FieldValue;
use lab::lock::{Lock, read};

use support::programs;

type TsvRow = BTreeMap<String, String>;

fn table(path: &str) -> Vec<TsvRow> {
    let text = programs::read(path);
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split('\t').collect();
    let row = |line: &str| {
        let cells = line.split('\t').map(str::to_owned);
        head.iter().map(|name| (*name).to_owned()).zip(cells).collect()
    };
    lines.map(row).collect()
}

fn published() -> Vec<(TsvRow, Experiment)> {
    let locked = |row: TsvRow| {
        let name = format!("lockfiles/{}.lock", row["model"]);
        match read(&name, &programs::read(&name)).unwrap() {
            Lock::Experiment(experiment) => (row, experiment),
            Lock::Arch(_) | Lock::Comparison(_) => panic!("{name}"),
        }
    };
    table("recipes/published/data/recipes.tsv").into_iter().map(locked).collect()
}

fn truth(is: bool) -> String {
    if is { "True" } else { "False" }.to_owned()
}

fn absent_or(present: bool, word: &str) -> String {
    if present { word.to_owned() } else { String::new() }
}

/// Values of one experiment, in the release's words; empty where they only repeat the release's default.
struct Release<'a>(&'a Experiment);

impl Release<'_> {
    fn field(&self, path: &str) -> String {
        self.0.value(path).map_or_else(String::new, FieldValue::plain)
    }

    fn lingua(&self, name: &str) -> String {
        match self.0.value(&format!("lingua.{name}")) {
            Some(FieldValue::Bool(is)) => truth(*is),
            Some(value) => value.plain(),
            None => panic!("lingua.{name}"),
        }
    }

    fn arch(&self, path: &str) -> String {
        let fields = &self.0.arch.compiled.fields;
        let field = fields.iter().find(|field| field.path == path);
        field.map_or_else(String::new, |field| field.value.clone())
    }

    fn mixer(&self, path: &str) -> String {
        self.arch(&format!("layers.0.mixer.{path}"))
    }

    /// The value of a key; `published` is the release's.
    fn value(&self, key: &str, published: &str) -> String {
        match key.split('.').next() {
            Some("model") => self.model(key, published),
            Some("optim") => self.optimizer(key, published),
            Some("data") => self.data(key),
            _ => self.trainer(key),
        }
    }

    fn model(&self, key: &str, published: &str) -> String {
        let kind = self.arch("layers.0.mixer");
        match key {
            "model.canon_set" => {
                let canon = |slot: &&str| self.arch(&format!("layers.0.slots.{slot}")) == "canon";
                let slots: Vec<&str> = ["A", "B", "C", "D"].into_iter().filter(canon).collect();
                // `bb` is the release's word for the mixer's own convolution; Llama has none.
                let conv_letters = if self.mixer("short_conv") == "true" { "bb" } else { "" };
                let (before, after) = slots.split_at(slots.len().min(1));
                if conv_letters.is_empty() {
                    slots.concat()
                } else {
                    format!("{}{conv_letters}{}", before.concat(), after.concat())
                }
            }
            "model.dim" => self.arch("dim"),
            "model.ffn_dim_multiplier" | "model.multiple_of" => {
                // Written, although a width overrides it.
                let setting = if key.ends_with("of") { "multiple_of" } else { "multiplier" };
                let ours = self.arch(&format!("layers.0.mlp.{setting}"));
                absent_or(
                    !published.is_empty(),
                    &if setting == "multiplier" { format!("{ours}.0") } else { ours },
                )
            }
            "model.hidden_dim" => {
                absent_or(!published.is_empty(), &self.arch("layers.0.mlp.hidden"))
            }
            "model.mamba_ssm" => self.mixer("state"),
            "model.mlp_type" => absent_or(kind == "mamba2", "mlp10"),
            "model.model_name" => match kind.as_str() {
                "gla" => "GLA5",
                "gated_deltanet" => "GDN2",
                "mamba2" => "Mamba2",
                _ => "",
            }
            .to_owned(),
            "model.n_heads" => self.mixer("heads"),
            "model.n_kv_heads" => {
                absent_or(self.mixer("kv_heads") != self.mixer("heads"), &self.mixer("kv_heads"))
            }
            "model.n_layers" => self.arch("layers"),
            "model.qk_norm" => absent_or(self.mixer("qk_norm") == "true", "True"),
            "model.rope_dim" => absent_or(
                self.mixer("rope.dims") != self.mixer("head_dim"),
                &self.mixer("rope.dims"),
            ),
            "model.rope_theta" => {
                absent_or(self.mixer("rope.theta") != "10000", &self.mixer("rope.theta"))
            }
            "model.z_loss" => {
                let nll = self.field("loss.nll_square");
                assert!(nll == "0" || nll == "0.0001", "{nll}");
                absent_or(nll != "0", "True")
            }
            "model.zeyuan_layernorm" => {
                absent_or(self.field("platform.kernels.gated_norm") == "reference", "True")
            }
            _ => unknown(key),
        }
    }

    fn optimizer(&self, key: &str, published: &str) -> String {
        match key {
            "optim.lr" => self.field("optimizer.lr"),
            "optim.weight_decay" => self.field("optimizer.weight_decay"),
            "optim.warmup" => self.field("schedule.warmup"),
            "optim.lr_min_ratio" => self.field("schedule.lr_min_ratio"),
            "optim.epsilon" => {
                assert_eq!(
                    Decimal::parse(published).unwrap().to_string(),
                    self.field("optimizer.eps")
                );
                published.to_owned()
            }
            "optim.beta1" | "optim.beta2" => {
                let Some(FieldValue::List(betas)) = self.0.value("optimizer.betas") else {
                    panic!()
                };
                betas[usize::from(key.ends_with('2'))].plain()
            }
            "optim.clip" => self.field("optimizer.clip"),
            "optim.scheduler" => self.field("schedule.kind"),
            _ => unknown(key),
        }
    }

    fn data(&self, key: &str) -> String {
        match key {
            "data.root_dir" => self.lingua("root_dir"),
            "data.batch_size" => self.field("batch.sequences"),
            "data.prefetch_size" => {
                // The release shuffled a buffer of this many batches per rank, and its locks have the
                // key.
                assert_eq!(self.field("data.shuffle"), "buffer");
                let number = |path: &str| self.field(path).parse::<u64>().unwrap();
                let held = number("lingua.prefetch_size") * number("batch.sequences");
                assert_eq!(number("data.shuffle_buffer"), held);
                self.lingua("prefetch_size")
            }
            "data.seq_len" => self.field("data.seq_len"),
            // Inputs, and the next tokens as targets: training here always has these two.
            "data.n_views" => "2".to_owned(),
            "data.load_async" => self.lingua("load_async"),
            "data.add_bos" => truth(self.field("data.add_bos") == "true"),
            "data.add_eos" => truth(self.field("data.add_eos") == "true"),
            "data.tokenizer.name" => match self.field("data.tokenizer").as_str() {
                "sentencepiece" => "sp".to_owned(),
                name => name.to_owned(),
            },
            "data.tokenizer.path" => self.lingua("tokenizer_path"),
            _ => unknown(key),
        }
    }

    fn trainer(&self, key: &str) -> String {
        match key {
            "steps" => self.field("budget.steps"),
            // Here micro-batches include those of all devices: one per device.
            "grad_acc_steps" => {
                let devices = u64::from(self.0.platform.devices.unwrap());
                (self.0.batch.micro_batches / devices).to_string()
            }
            "seed" => self.lingua("seed"),
            "probe_freq" => {
                absent_or(self.lingua("probe_freq") != "never", &self.lingua("probe_freq"))
            }
            "logging.freq" => self.field("log.every"),
            "distributed.fsdp_type" => self.lingua("fsdp_type"),
            "distributed.compile" => self.lingua("compile"),
            "distributed.model_dtype" => self.field("precision.policy"),
            "distributed.matmul_allow_tf32" => self.lingua("matmul_allow_tf32"),
            "distributed.selective_activation_checkpointing" => {
                truth(self.field("platform.recompute") != "nothing")
            }
            // Tensors are never split here.
            "distributed.tp_size" => "1".to_owned(),
            "profiling.run" => self.lingua("profiling"),
            "checkpoint.dump.every" => self.field("checkpoint.every"),
            "checkpoint.dump.keep" => self.field("checkpoint.keep"),
            "checkpoint.eval.every" => self.field("evaluation.every"),
            "checkpoint.eval.keep" => self.lingua("eval_keep"),
            "checkpoint.read_s3" => absent_or(self.lingua("read_s3") == "True", "True"),
            "async_eval_gpus" => self.lingua("async_eval_gpus"),
            "eval.harness.tasks" => {
                let Some(FieldValue::List(tasks)) = self.0.value("lingua.harness_tasks") else {
                    panic!()
                };
                tasks.iter().map(FieldValue::plain).collect::<Vec<_>>().join(",")
            }
            "eval.harness.log_samples" => self.lingua("log_samples"),
            // Present, and empty.
            "eval.validation" => String::new(),
            "eval.generator.max_tokens" => self.lingua("generator_max_tokens"),
            "eval.generator.dtype" => self.lingua("generator_dtype"),
            "eval.generator.show_progress" => self.lingua("show_progress"),
            "eval.save_s3" => absent_or(self.lingua("save_s3") == "True", "True"),
            "eval.save_consolidated_to_local" => {
                absent_or(self.lingua("save_consolidated_to_local") == "False", "False")
            }
            _ => unknown(key),
        }
    }
}

fn unknown(key: &str) -> ! {
    panic!("`{key}` of the release has no counterpart")
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
            assert_eq!(
                Release(experiment).value(key, published),
                published,
                "{}: {key}",
                row["model"]
            );
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
        let published: f64 = row["lr_x_wd_x_steps"].parse().unwrap();
        assert!((product - published).abs() < 0.006, "{name}: {product} {published}");
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
        let published: f64 = row["warmup_frac"].parse().unwrap();
        assert!((share - published).abs() < 1e-5, "{name}: {share} {published}");
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
        let path = format!("lockfiles/{}.lock", row["model"]);
        let Lock::Experiment(single) = read(&path, &programs::read(&path)).unwrap() else {
            panic!("{path}")
        };
        assert_eq!(arm.experiment.digests, single.digests, "{name}");
        let kernel = |change: &&lab::verdict::Change| change.path.contains("gated_norm");
        let differs = verdict.platform.iter().any(|change| kernel(&change));
        assert_eq!(differs, name.contains("GLA5-3B-Nemo-1T-lr0.005"), "{name}");
    }
    assert_eq!((single, bundles), (24, 8));
}
