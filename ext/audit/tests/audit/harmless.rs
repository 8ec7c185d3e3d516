//! Keys without effect: every default of the other trainer written out, and every key of its logs, profiles and launch.
//!
//! The defaults are those that facebookresearch/lingua and the release's fork document.

use std::collections::BTreeSet;

use audit::vocabularies::LINGUA;
use audit::{
    AuditReport, Experiment, Findings, Names, Rules, Severity, audit, keys, subjects, table,
};
use lab::field::Absent;

/// `TrainArgs` and its parts: keys with their defaults.
const DEFAULTS: &[(&str, &str)] = &[
    ("name", "lingua"),
    ("dump_dir", ""),
    ("seed", "42"),
    ("grad_acc_steps", "1"),
    ("gc_collect_freq", "1000"),
    ("probe_freq", ""),
    ("steps", "1000"),
    ("async_eval_gpus", ""),
    ("eval", ""),
    ("intradoc_mask", "false"),
    ("doc_separator", "2"),
    ("dynamic_mask", "false"),
    ("data.root_dir", ""),
    ("data.batch_size", "2"),
    ("data.seq_len", "2048"),
    ("data.n_views", "2"),
    ("data.seed", "42"),
    ("data.add_bos", "true"),
    ("data.add_eos", "true"),
    ("data.load_async", "true"),
    ("data.prefetch_size", "64"),
    ("data.tokenizer.name", "bytes"),
    ("data.tokenizer.path", ""),
    ("optim.lr", "0.0003"),
    ("optim.weight_decay", "0.1"),
    ("optim.epsilon", "1e-8"),
    ("optim.beta1", "0.9"),
    ("optim.beta2", "0.95"),
    ("optim.clip", "1.0"),
    ("optim.scheduler", "cosine"),
    ("optim.warmup", "2000"),
    ("optim.lr_min_ratio", "0.1"),
    ("optim.cycle_length", "1.0"),
    ("optim.cosine_theta", "1.0"),
    ("optim.annealing_step", "1000"),
    ("optim.decay_fraction", "0.1"),
    ("optim.exp_factor", "0.5"),
    ("model.dim", "512"),
    ("model.n_layers", "8"),
    ("model.head_dim", ""),
    ("model.n_heads", ""),
    ("model.n_kv_heads", ""),
    ("model.hidden_dim", ""),
    ("model.ffn_dim_multiplier", ""),
    ("model.multiple_of", "256"),
    ("model.norm_eps", "1e-5"),
    ("model.rope_theta", "10000.0"),
    ("model.rope_dim", ""),
    ("model.init_base_std", ""),
    ("model.init_std_factor", "disabled"),
    ("model.max_seqlen", "1024"),
    ("model.seed", "42"),
    ("model.vocab_size", "-1"),
    ("model.weight_tying", "false"),
    ("model.attn_impl", "sdpa"),
    ("model.sliding_window", ""),
    ("model.z_loss", "false"),
    ("model.qk_norm", "false"),
    ("model.canon_bias", "false"),
    ("model.canon_activation", "false"),
    ("model.canon_kernel", "4"),
    ("model.canon_residual", "true"),
    ("distributed.dp_shard", "1"),
    ("distributed.dp_replicate", "1"),
    ("distributed.tp_size", "1"),
    ("distributed.selective_activation_checkpointing", "false"),
    ("distributed.compile", "false"),
    ("distributed.fsdp_type", "no_shard"),
    ("distributed.model_dtype", "bf16"),
    ("distributed.float8_recipe", ""),
    ("distributed.float8_filter", "layers\\.[0-9]+\\."),
    ("distributed.matmul_allow_tf32", "false"),
    ("distributed.allow_bf16_reduced_precision_reduction", "true"),
    ("distributed.detect_anomaly", "false"),
    ("distributed.compile_cache_size_limit", "8"),
    ("distributed.spawn_method", "forkserver"),
    ("env.MKL_SERVICE_FORCE_INTEL", "GNU"),
    ("env.OMP_NUM_THREADS", "1"),
    ("env.MKL_NUM_THREADS", "1"),
    ("env.ENABLE_INTRA_NODE_COMM", "1"),
    ("env.TORCH_NCCL_AVOID_RECORD_STREAMS", "1"),
    ("env.NCCL_IB_TIMEOUT", "22"),
    ("env.NCCL_DEBUG", "INFO"),
    ("env.TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    ("checkpoint.dump.every", "1000"),
    ("checkpoint.dump.keep", "0"),
    ("checkpoint.eval.every", "1000"),
    ("checkpoint.eval.keep", "0"),
    ("checkpoint.path", ""),
    ("checkpoint.init_ckpt_path", ""),
    ("checkpoint.continue_training_from_init", "false"),
    ("profiling.run", "false"),
    ("profiling.trace_folder", "profiling"),
    ("profiling.mem_warmup", "100"),
    ("profiling.mem_steps", "2"),
    ("profiling.profile_warmup", "102"),
    ("profiling.profile_steps", "2"),
    ("logging.freq", "10"),
    ("logging.acc_freq", ""),
    ("logging.wandb", ""),
    ("eval.generator.temperature", "0.0"),
    ("eval.generator.top_p", ""),
    ("eval.generator.top_k", ""),
    ("eval.generator.max_gen_len", "512"),
    ("eval.generator.max_tokens", "1024"),
    ("eval.generator.max_prompt_len", ""),
    ("eval.generator.compile_prefilling", "false"),
    ("eval.generator.reduce_generation_overhead", "false"),
    ("eval.generator.show_progress", "false"),
    ("eval.generator.dtype", "bf16"),
    ("eval.generator.device", "cuda"),
    ("eval.harness.num_fewshot", ""),
    ("eval.harness.log_samples", "true"),
    ("eval.harness.bootstrap_iters", "100000"),
    ("eval.harness.random_seed", "0"),
    ("eval.harness.numpy_random_seed", "1234"),
    ("eval.harness.torch_random_seed", "1234"),
    ("eval.harness.fewshot_random_seed", "1234"),
    ("eval.harness.device", ""),
    ("eval.harness.use_cache", ""),
    ("eval.harness.cache_requests", "false"),
    ("eval.harness.rewrite_requests_cache", "false"),
    ("eval.harness.delete_requests_cache", "false"),
    ("eval.harness.limit", ""),
    ("eval.harness.check_integrity", "false"),
    ("eval.harness.write_out", "false"),
    ("eval.harness.system_instruction", ""),
    ("eval.harness.apply_chat_template", "false"),
    ("eval.harness.fewshot_as_multiturn", "false"),
    ("eval.harness.gen_kwargs", ""),
    ("eval.harness.verbosity", "INFO"),
    ("eval.harness.predict_only", "false"),
    ("eval.validation.max_steps", ""),
    ("eval.validation.use_val_from_train_src", "true"),
    ("eval.name", "evals"),
    ("eval.metric_log_dir", ""),
    ("eval.ckpt_dir", ""),
    ("eval.global_step", ""),
];

/// Keys of logs, profiles and launches, with any value.
const IDLE: &[(&str, &str)] = &[
    ("name", "my-run"),
    ("gc_collect_freq", "50"),
    ("probe_freq", "100"),
    ("async_eval_gpus", "16"),
    ("logging.freq", "1"),
    ("logging.acc_freq", "1"),
    ("logging.level", "DEBUG"),
    ("logging.wandb.project", "mine"),
    ("logging.wandb.entity", "me"),
    ("logging.wandb.name", "x"),
    ("logging.wandb.mode", "offline"),
    ("logging.wandb.tags", "a,b"),
    ("wandb.project", "mine"),
    ("profiling.run", "true"),
    ("profiling.trace_folder", "traces"),
    ("profiling.mem_steps", "7"),
    ("profiling.profile_steps", "7"),
    ("checkpoint.dump.every", "77"),
    ("checkpoint.dump.keep", "7"),
    ("checkpoint.eval.every", "77"),
    ("checkpoint.read_s3", "true"),
    ("data.load_async", "false"),
    ("distributed.spawn_method", "spawn"),
    ("distributed.detect_anomaly", "true"),
    ("env.NCCL_DEBUG", "WARN"),
    ("env.OMP_NUM_THREADS", "8"),
    ("launcher", "bash"),
    ("copy_code", "false"),
    ("ncpu", "32"),
    ("mem", "100G"),
    ("time", "4320"),
    ("account", "mine"),
    ("qos", "high"),
    ("stdout", "true"),
    ("slurm.mail_user", "me"),
    ("slurm.mail-type", "END"),
    ("slurm.cpus_per_task", "4"),
    ("slurm.exclusive", "true"),
    ("slurm.requeue", "true"),
    ("slurm.mem_per_cpu", "4G"),
    ("slurm.job_name", "x"),
    ("slurm.signal", "USR1@60"),
    ("slurm.output", "log.txt"),
    ("slurm.dependency", "afterok:1"),
    ("slurm.comment", "hi"),
    ("sbatch.comment", "hi"),
    ("sbatch.time", "24:00:00"),
    ("stool.copy_code", "false"),
    ("stool.dirs_exists_ok", "true"),
    ("launch.time_limit", "3"),
    ("launch.name", "x"),
    ("launch.rdzv_backend", "c10d"),
    ("launch.rdzv_endpoint", "h:1"),
    ("launch.max_restarts", "3"),
    ("launch.resources.memory", "64"),
    ("launch.env.NCCL_DEBUG", "WARN"),
    ("launcher.timeout_min", "60"),
    ("launcher.submitit_folder", "/x"),
    ("launcher.tags.mine", "x"),
    ("slurm.time", "4320"),
    ("slurm.account", "mine"),
    ("eval.harness.log_samples", "true"),
    ("eval.generator.show_progress", "true"),
    ("eval.save_s3", "true"),
    ("model.max_seqlen", "77"),
];

/// The keys that both arms share, apart from the key under test.
const KEYS: &[(&str, &str)] = &[
    ("seed", "777"),
    ("steps", "240000"),
    ("model.dim", "2048"),
    ("model.n_layers", "24"),
    ("model.n_heads", "32"),
    ("optim.lr", "0.002"),
    ("optim.weight_decay", "0.02"),
    ("optim.warmup", "8000"),
    ("data.root_dir", "/data"),
    ("data.batch_size", "8"),
    ("data.seq_len", "4096"),
    ("data.sources.web", "1.0"),
    ("data.tokenizer.name", "sp"),
    ("data.tokenizer.path", "/tokenizer.model"),
    ("gpus_from_comment", "128"),
];

fn lingua() -> Names {
    Names::of_vocabulary(&LINGUA)
}

fn configuration(name: &str, keys: &[(&str, &str)]) -> Experiment {
    Experiment::of_keys(name, "x.yaml", &lingua(), keys.iter().map(|(k, v)| (1, *k, *v))).unwrap()
}

fn audited(set: &[Experiment]) -> AuditReport {
    audit(&subjects(set), &Rules::default(), Findings::default())
}

/// The findings above a note, by rule and key.
fn heavy(report: &AuditReport) -> BTreeSet<String> {
    let heavy = report.findings.iter().filter(|(details, _)| details.severity > Severity::Note);
    heavy.map(|(_, f)| format!("{} {}: {}", f.rule, f.key, f.message)).collect()
}

/// A pair with these keys written in one arm only: as configurations, and as a table.
fn written(keys: &[(&str, &str)], treated: bool) -> [Vec<Experiment>; 2] {
    let path_of = |name: &str| keys::known(name).map_or(name.to_owned(), |row| row.path.to_owned());
    let paths: BTreeSet<String> = keys.iter().map(|(key, _)| path_of(key)).collect();
    let shared: Vec<_> =
        KEYS.iter().filter(|(key, _)| !paths.contains(&path_of(key))).copied().collect();
    let mut arms = [shared.clone(), shared];
    arms[1].push(("model.canon_set", "ABCD"));
    arms[usize::from(treated)].extend(keys);
    let columns: BTreeSet<&str> = arms.iter().flatten().map(|(key, _)| *key).collect();
    let mut text = format!("model\t{}\n", columns.iter().copied().collect::<Vec<_>>().join("\t"));
    for (name, keys) in ["run", "runcanon"].into_iter().zip(&arms) {
        let cell = |column: &&str| keys.iter().find(|(k, _)| k == column).map_or("", |(_, v)| *v);
        text += &format!("{name}\t{}\n", columns.iter().map(cell).collect::<Vec<_>>().join("\t"));
    }
    // In a table, `name` would be the column of the experiments' names.
    let rows = table("x.tsv", &text).unwrap();
    [vec![configuration("run", &arms[0]), configuration("runcanon", &arms[1])], rows]
}

fn stays_clean(keys: &[(&str, &str)], what: &str) {
    for treated in [false, true] {
        for set in written(keys, treated) {
            let report = audited(&set);
            let loud = heavy(&report);
            // Every such pair has the finding that devices are only in a comment.
            let loud: Vec<_> =
                loud.iter().filter(|l| !l.starts_with("budget-in-comment")).collect();
            assert!(loud.is_empty(), "{what}, treated {treated}: {loud:?}");
            assert_eq!(report.clean.len(), 1, "{what}: {:?}", report.findings);
        }
    }
}

#[test]
fn a_default_written_out_is_not_a_difference() {
    for (key, value) in DEFAULTS {
        assert!(keys::known(key).is_some(), "{key} has no row");
        stays_clean(&[(key, value)], key);
    }
    stays_clean(DEFAULTS, "all defaults");
}

#[test]
fn logs_profiles_and_launches_are_harmless() {
    for (key, value) in IDLE {
        stays_clean(&[(key, value)], key);
    }
    stays_clean(IDLE, "all of them");
}

/// A program that a launcher starts can set any key, so a difference in it is one confound. So is an unknown key.
#[test]
fn a_command_of_the_launch_decides() {
    for (key, value, rule) in [
        ("launch.overrides", "optim.lr=0.1", "twin-training"),
        ("launcher.args", "--weight-decay 0", "twin-training"),
        ("slurm.command", "python other.py", "twin-training"),
        ("stool.script", "apps.other.train", "twin-training"),
        ("sbatch.extra_args", "lr=1", "twin-training"),
        ("launch.config", "other.yaml", "twin-training"),
        ("launcher.config_file", "other.yaml", "twin-training"),
        ("slurm.export", "ALL,SEED=3", "twin-training"),
        ("slurm.setup", "export X=1", "twin-training"),
        ("slurm.srun_args", "x", "twin-training"),
        ("dump_dir", "/elsewhere", "twin-training"),
        ("checkpoint.path", "/elsewhere", "twin-training"),
        ("override", "true", "twin-training"),
        ("anaconda", "mine", "twin-training"),
        ("constraint", "volta32gb", "twin-kernel"),
        ("exclude", "node7", "twin-kernel"),
        ("partition", "learn", "twin-kernel"),
        ("slurm.partition", "learn", "twin-kernel"),
        ("slurm.nodelist", "n[1-4]", "twin-kernel"),
        ("slurm.container_image", "t.sqsh", "twin-training"),
        ("slurm.container.mounts", "/data", "twin-data"),
        ("stool.anaconda", "mine", "twin-training"),
        ("stool.override", "true", "twin-training"),
        ("launch.partition", "b", "twin-kernel"),
        ("launch.image", "t", "twin-training"),
        ("launch.region", "eu", "twin-kernel"),
        ("launcher.type", "slurm", "twin-training"),
        ("launcher.slurm_partition", "learn", "twin-kernel"),
        ("my.flag", "7", "unknown-key"),
        ("launch.optim.lr", "0.1", "unknown-key"),
        ("launch.seed", "3", "unknown-key"),
        ("launch.steps", "77", "unknown-key"),
        ("launch.precision", "bf16", "unknown-key"),
        ("launch.mixed_precision", "fp16", "unknown-key"),
        ("launch.env.NVIDIA_TF32_OVERRIDE", "1", "unknown-key"),
        ("launcher.env", "A=1", "unknown-key"),
        ("launch.accelerate.mixed_precision", "fp16", "unknown-key"),
        ("launch.deepspeed_config", "x.json", "unknown-key"),
        ("launch.git_commit", "abc", "twin-training"),
        ("slurm.gres", "gpu:4", "unknown-key"),
        ("slurm.array", "0-3", "unknown-key"),
        ("slurm.anything", "x", "unknown-key"),
    ] {
        for set in written(&[(key, value)], true) {
            let report = audited(&set);
            let loud = heavy(&report);
            let loud: Vec<_> =
                loud.iter().filter(|l| !l.starts_with("budget-in-comment")).collect();
            assert!(matches!(loud.as_slice(), [one] if one.starts_with(rule)), "{key}: {loud:?}");
            assert!(report.clean.is_empty(), "{key}");
        }
    }
}

/// The devices of a launch determine how much is read, and may contradict the number in a comment.
#[test]
fn devices_of_a_launch_are_counted() {
    let shared: Vec<_> =
        KEYS.iter().filter(|(key, _)| *key != "gpus_from_comment").copied().collect();
    let with = |more: &[(&'static str, &'static str)]| {
        let mut keys = shared.clone();
        keys.extend(more);
        keys
    };
    let canon = ("model.canon_set", "ABCD");
    let launched = |nodes, each| [("slurm.nodes", nodes), ("slurm.ngpu", each)];
    let pair = |a: &[(&str, &str)], b: &[(&str, &str)]| {
        audited(&[configuration("run", a), configuration("runcanon", b)])
    };
    let base = with(&launched("16", "8"));
    let mut same = with(&launched("32", "4"));
    same.push(canon);
    assert_eq!(pair(&base, &same).clean.len(), 1);
    let mut fewer = with(&launched("2", "8"));
    fewer.push(canon);
    let report = pair(&base, &fewer);
    assert!(
        heavy(&report).iter().any(|l| l.starts_with("twin-budget platform.devices")),
        "{report:?}"
    );
    let mut lying = with(&launched("2", "8"));
    lying.push(("gpus_from_comment", "128"));
    let report = audited(&[configuration("run", &lying)]);
    assert!(
        heavy(&report).iter().any(|l| l.starts_with("devices-disagree platform.devices")),
        "{report:?}"
    );
}

fn launched(name: &str, keys: &[(&'static str, &'static str)], comment: &str) -> Experiment {
    let mut all: Vec<_> = KEYS.iter().filter(|(k, _)| *k != "gpus_from_comment").copied().collect();
    all.retain(|(key, _)| !keys.iter().any(|(other, _)| other == key));
    all.extend(keys);
    if name == "runcanon" {
        all.push(("model.canon_set", "ABCD"));
    }
    let mut experiment = configuration(name, &all);
    experiment.read_devices([(1, comment)]);
    experiment
}

/// Only the nodes, or only the devices per node: the step cannot be counted, so a difference is a confound.
#[test]
fn half_a_launch_is_reported() {
    for (key, one, two) in [
        ("nodes", "16", "2"),
        ("ngpu", "8", "4"),
        ("slurm.nodes", "16", "2"),
        ("launcher.ngpu", "8", "4"),
    ] {
        let pair = |a, b| {
            audited(&[launched("run", &[(key, a)], ""), launched("runcanon", &[(key, b)], "")])
        };
        let rules = |report: &AuditReport| -> Vec<String> {
            report.findings.iter().map(|(_, f)| f.rule.clone()).collect()
        };
        let report = pair(one, two);
        assert!(rules(&report).contains(&"twin-budget".to_owned()), "{key}: {report:?}");
        assert!(report.clean.is_empty() && report.fails(), "{key}");
        assert!(rules(&pair(one, one)).contains(&"devices-unread".to_owned()), "{key}");
        assert!(!pair(one, one).fails(), "{key}");
        // If keys give the tokens of a step, devices only divide the work.
        let counted = |a| [(key, a), ("batch.tokens_per_step", "4194304")];
        let report =
            audited(&[launched("run", &counted(one), ""), launched("runcanon", &counted(two), "")]);
        assert_eq!(report.clean.len(), 1, "{key}: {report:?}");
    }
    let twice = Experiment::of_keys(
        "run",
        "x.yaml",
        &lingua(),
        [(1, "nodes", "16"), (2, "slurm.nodes", "2")],
    );
    let report = audited(&[twice.unwrap()]);
    let (_, disagree) = report.findings.iter().find(|(_, f)| f.rule == "devices-disagree").unwrap();
    assert_eq!(disagree.occurrences[0].observation, "`nodes` is 16, `slurm.nodes` is 2");
    assert!(report.fails());
}

/// A default of a key that the mixer does not read, written in one arm.
#[test]
fn a_default_for_another_mixer_is_not_a_difference() {
    for family in ["GLA5", "GDN2", "Mamba2"] {
        for (key, value) in [
            ("model.rope_theta", "10000.0"),
            ("model.rope_dim", "64"),
            ("model.n_kv_heads", "32"),
            ("model.sliding_window", ""),
            ("model.qk_norm", "false"),
        ] {
            let of_family = ("model.model_name", family);
            for arms in [
                [&[of_family][..], &[of_family, (key, value)]],
                [&[of_family, (key, value)], &[of_family]],
            ] {
                let [a, b] = arms;
                let report =
                    audited(&[launched("run", a, "128 GPUs"), launched("runcanon", b, "128 GPUs")]);
                let loud: Vec<_> = heavy(&report)
                    .into_iter()
                    .filter(|l| !l.starts_with("budget-in-comment"))
                    .collect();
                assert!(loud.is_empty(), "{family} {key}: {loud:?}");
                assert_eq!(report.clean.len(), 1, "{family} {key}");
            }
        }
    }
}

/// Defaults stay defaults whatever the other keys of their section are.
#[test]
fn a_default_is_not_a_difference_next_to_other_keys() {
    let bases: [&[(&str, &str)]; 5] = [
        &[("distributed.dp_shard", "8")],
        &[("distributed.dp_shard", "8"), ("distributed.tp_size", "2")],
        &[("distributed.fsdp_type", "full_shard"), ("distributed.compile", "true")],
        &[("optim.scheduler", "wsd"), ("eval.harness.tasks", "hellaswag")],
        &[("checkpoint.dump.every", "5000"), ("data.tokenizer.name", "tiktoken")],
    ];
    for base in bases {
        for (key, value) in DEFAULTS.iter().filter(|(key, _)| !base.iter().any(|(k, _)| k == key)) {
            let mut with = base.to_vec();
            with.push((key, value));
            // Keys that every arm has are not changed.
            if KEYS.iter().any(|(other, _)| other == key) {
                continue;
            }
            for arms in [[base, &with[..]], [&with[..], base]] {
                let report = audited(&[
                    launched("run", arms[0], "128 GPUs"),
                    launched("runcanon", arms[1], "128 GPUs"),
                ]);
                let loud: Vec<_> = heavy(&report)
                    .into_iter()
                    .filter(|line| !line.starts_with("budget-in-comment"))
                    .collect();
                assert!(loud.is_empty(), "{key} with {base:?}: {loud:?}");
                assert_eq!(report.clean.len(), 1, "{key} with {base:?}");
            }
        }
    }
}

#[test]
fn distribution_keys_count_devices_only_without_a_comment() {
    let keys = [
        ("distributed.dp_shard", "8"),
        ("distributed.dp_replicate", "4"),
        ("distributed.tp_size", "2"),
    ];
    let devices = |comment| {
        let read = launched("run", &keys, comment);
        (read.values["platform.devices"].to_string(), read.devices.disagree.len())
    };
    assert_eq!(devices(""), ("64".to_owned(), 0));
    assert_eq!(devices("64 GPUs"), ("64".to_owned(), 0));
    assert_eq!(devices("128 GPUs"), ("128".to_owned(), 2));
}

/// All ways to write "off" are equal, for keys that are off if absent.
#[test]
fn every_way_to_write_off_is_one_value() {
    const OFF: [&str; 8] = ["0", "0.0", "false", "False", "null", "none", "None", "off"];
    for row in keys::rows() {
        let off = match row.absent {
            Absent::Is(word) | Absent::Default(word) => word == "false",
            Absent::As(_) | Absent::Unknown => false,
        };
        // For some keys, other words also mean off.
        let Some(key) = row.foreign.first().filter(|key| off && !key.ends_with('*')) else {
            continue;
        };
        for value in OFF {
            stays_clean(&[(key, value)], &format!("{key} {value}"));
        }
    }
    stays_clean(&[("model.sliding_window", "false")], "no window");
    let on = [("model.z_loss", "1e-5")];
    assert!(written(&on, true).iter().all(|set| !heavy(&audited(set)).is_empty()));
}

/// Naming two files asks for their differences, even if neither is treated.
#[test]
fn two_files_that_differ_in_one_key_are_a_pair_with_one_finding() {
    let one = configuration("a", &[("optim.lr", "3e-4"), ("model.dim", "512")]);
    let two = configuration("b", &[("optim.lr", "6e-4"), ("model.dim", "512")]);
    let report = audited(&[one.clone(), two.clone()]);
    // One difference is the comparison itself: a note. Two confound each other.
    assert!(heavy(&report).is_empty() && report.pairs.len() == 1);
    let both = configuration("b", &[("optim.lr", "6e-4"), ("model.dim", "512"), ("steps", "9000")]);
    let lines: Vec<String> = heavy(&audited(&[one.clone(), both])).into_iter().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines.iter().any(|text| text.starts_with("twin-training optimizer.lr: 0.0003 | 0.0006"))
    );
    // Equal files, or seeds of one experiment, are not a pair; with three files, the intended pair
    // is unknown.
    let seed =
        configuration("c", &[("optim.lr", "3e-4"), ("model.dim", "512"), ("model.seed", "7")]);
    assert!(audited(&[one.clone(), one.clone()]).pairs.is_empty());
    assert!(audited(&[one.clone(), seed.clone()]).pairs.is_empty());
    assert!(audited(&[one, two, seed]).pairs.is_empty());
}
