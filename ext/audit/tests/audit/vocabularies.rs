//! Planted confounds and harmless differences in the words of each trainer, in configurations and in tables.

use audit::vocabularies::Vocabulary;
use audit::{
    AuditReport, Experiment, Findings, Names, Rules, audit, markdown, records, subjects, table_in,
};

/// A trainer's configuration, with differences that change a result and differences that do not.
struct Planted {
    vocabulary: &'static str,
    /// As a public project publishes it, one `key = value` a line.
    base: &'static str,
    confounds: &'static [(&'static str, &'static str)],
    harmless: &'static [(&'static str, &'static str)],
}

/// torchtitan's `llama3_8b.toml`, nanoGPT's `train_shakespeare_char.py`, GPT-NeoX's `125M.yml`, axolotl's
/// `llama-3/lora-1b.yml`, and a `config.json` with `TrainingArguments`: their keys and values.
const PLANTED: &[Planted] = &[
    Planted {
        vocabulary: "transformers",
        base: "architectures = LlamaForCausalLM\nmodel_type = llama\nhidden_size = 576\nintermediate_size = 1536\n\
               num_hidden_layers = 30\nnum_attention_heads = 9\nnum_key_value_heads = 3\nhidden_act = silu\n\
               initializer_range = 0.041666666666666664\nmax_position_embeddings = 2048\nrms_norm_eps = 1e-05\n\
               rope_theta = 10000.0\ntie_word_embeddings = true\ntorch_dtype = bfloat16\nvocab_size = 49152\n\
               attention_dropout = 0.0\nbos_token_id = 0\neos_token_id = 0\nuse_cache = true\n\
               transformers_version = 4.37.2\nper_device_train_batch_size = 8\nlearning_rate = 0.003\n\
               lr_scheduler_type = cosine\nwarmup_steps = 2500\nmax_steps = 600000\nbf16 = true\noutput_dir = out",
        confounds: &[
            ("hidden_size", "640"),
            ("num_hidden_layers", "24"),
            ("learning_rate", "0.001"),
            ("per_device_train_batch_size", "16"),
            ("lr_scheduler_type", "linear"),
            ("max_steps", "300000"),
            ("bf16", "false"),
            ("rope_theta", "100000"),
            ("weight_decay", "0.1"),
            ("adam_beta2", "0.95"),
            ("seed", "7"),
            ("gradient_accumulation_steps", "4"),
            ("rope_scaling.factor", "8"),
            ("dataset_name", "c4"),
            ("label_smoothing_factor", "0.1"),
            ("gradient_checkpointing", "true"),
            ("my_new_flag", "3"),
        ],
        harmless: &[
            ("output_dir", "elsewhere"),
            ("logging_steps", "10"),
            ("save_steps", "1000"),
            ("save_total_limit", "2"),
            ("report_to", "wandb"),
            ("run_name", "second"),
            ("dataloader_num_workers", "8"),
            ("push_to_hub", "true"),
            ("transformers_version", "4.40.0"),
            ("_name_or_path", "x/y"),
            ("disable_tqdm", "true"),
            ("adam_beta1", "0.9"),
            ("seed", "42"),
            ("gradient_accumulation_steps", "1"),
            ("rope_theta", "1e4"),
            ("use_cache", "false"),
        ],
    },
    Planted {
        vocabulary: "torchtitan",
        base: "job.dump_folder = ./outputs\njob.description = Llama 3 8B training\nprofiling.enable_profiling = true\n\
               profiling.save_traces_folder = profile_trace\nprofiling.profile_freq = 100\nmetrics.log_freq = 10\n\
               metrics.enable_tensorboard = true\nmetrics.save_tb_folder = tb\nmodel.name = llama3\nmodel.flavor = 8B\n\
               model.tokenizer_path = ./assets/tokenizer/original/tokenizer.model\noptimizer.name = AdamW\n\
               optimizer.lr = 3e-4\noptimizer.eps = 1e-8\nlr_scheduler.warmup_steps = 200\ntraining.batch_size = 1\n\
               training.seq_len = 8192\ntraining.max_norm = 1.0\ntraining.steps = 1000\ntraining.compile = false\n\
               training.dataset = c4\nparallelism.data_parallel_shard_degree = -1\n\
               parallelism.tensor_parallel_degree = 1\ncheckpoint.enable_checkpoint = false\n\
               checkpoint.folder = checkpoint\ncheckpoint.interval = 500\ncheckpoint.export_dtype = float32\n\
               checkpoint.async_mode = disabled\nactivation_checkpoint.mode = selective\nfloat8.filter_fqns = output",
        confounds: &[
            ("model.flavor", "1B"),
            ("optimizer.lr", "1e-3"),
            ("optimizer.name", "Adam"),
            ("training.batch_size", "2"),
            ("training.seq_len", "4096"),
            ("training.steps", "2000"),
            ("training.dataset", "c4_test"),
            ("training.max_norm", "0.5"),
            ("lr_scheduler.warmup_steps", "0"),
            ("lr_scheduler.decay_type", "cosine"),
            ("parallelism.tensor_parallel_degree", "8"),
            ("float8.filter_fqns", "wq"),
            ("training.mixed_precision_param", "float32"),
            ("checkpoint.initial_load_path", "/ckpt"),
            ("model.tokenizer_path", "./other.model"),
            ("optimizer.beta2", "0.99"),
            ("job.dump_folder", "/shared/ckpt"),
        ],
        harmless: &[
            ("job.description", "second"),
            ("profiling.enable_profiling", "false"),
            ("profiling.profile_freq", "10"),
            ("metrics.log_freq", "1"),
            ("metrics.enable_tensorboard", "false"),
            ("metrics.enable_wandb", "true"),
            ("metrics.save_tb_folder", "logs"),
            ("checkpoint.interval", "100"),
            ("checkpoint.async_mode", "async"),
            ("checkpoint.keep_latest_k", "3"),
            ("checkpoint.export_dtype", "bfloat16"),
            ("comm.init_timeout_seconds", "300"),
            ("optimizer.lr", "0.0003"),
            ("optimizer.beta1", "0.9"),
        ],
    },
    Planted {
        vocabulary: "megatron",
        base: "num_layers = 12\nhidden_size = 768\nnum_attention_heads = 12\nseq_length = 1024\n\
               max_position_embeddings = 1024\nmicro_batch_size = 4\nglobal_batch_size = 64\nlr = 0.0006\n\
               train_iters = 500000\nlr_decay_iters = 320000\nlr_decay_style = cosine\nmin_lr = 6e-5\n\
               weight_decay = 0.1\nlr_warmup_fraction = 0.01\nclip_grad = 1.0\nfp16 = true\n\
               data_path = my-gpt2_text_document\nvocab_file = gpt2-vocab.json\nmerge_file = gpt2-merges.txt\n\
               split = 949,50,1\nlog_interval = 100\nsave_interval = 10000\neval_interval = 1000\neval_iters = 10\n\
               tensor_model_parallel_size = 2",
        confounds: &[
            ("num_layers", "24"),
            ("hidden_size", "1024"),
            ("lr", "0.0003"),
            ("global_batch_size", "128"),
            ("micro_batch_size", "8"),
            ("train_iters", "100000"),
            ("data_path", "other_text_document"),
            ("split", "969,30,1"),
            ("fp16", "false"),
            ("tensor_model_parallel_size", "4"),
            ("seed", "7"),
            ("load", "/checkpoints"),
            ("swiglu", "true"),
            ("adam_beta2", "0.95"),
            ("hidden_dropout", "0"),
            ("min_lr", "0"),
        ],
        harmless: &[
            ("log_interval", "10"),
            ("save_interval", "500"),
            ("eval_interval", "100"),
            ("save", "/checkpoints/second"),
            ("tensorboard_dir", "tb"),
            ("wandb_project", "p"),
            ("wandb_exp_name", "second"),
            ("log_throughput", "true"),
            ("num_workers", "4"),
            ("distributed_timeout_minutes", "30"),
            ("profile", "true"),
            ("adam_beta1", "0.9"),
            ("weight_decay", "1e-1"),
        ],
    },
    Planted {
        vocabulary: "nanogpt",
        base: "out_dir = out-shakespeare-char\neval_interval = 250\neval_iters = 200\nlog_interval = 10\n\
               always_save_checkpoint = False\nwandb_log = False\nwandb_project = shakespeare-char\n\
               wandb_run_name = mini-gpt\ndataset = shakespeare_char\ngradient_accumulation_steps = 1\n\
               batch_size = 64\nblock_size = 256\nn_layer = 6\nn_head = 6\nn_embd = 384\ndropout = 0.2\n\
               learning_rate = 1e-3\nmax_iters = 5000\nlr_decay_iters = 5000\nmin_lr = 1e-4\nbeta2 = 0.99\n\
               warmup_iters = 100",
        confounds: &[
            ("dataset", "openwebtext"),
            ("batch_size", "32"),
            ("block_size", "512"),
            ("n_layer", "12"),
            ("n_embd", "768"),
            ("dropout", "0.0"),
            ("learning_rate", "6e-4"),
            ("max_iters", "2000"),
            ("min_lr", "1e-5"),
            ("beta2", "0.95"),
            ("warmup_iters", "0"),
            ("dtype", "float16"),
            ("init_from", "gpt2"),
            ("gradient_accumulation_steps", "5"),
            ("weight_decay", "0.2"),
            ("compile", "False"),
        ],
        harmless: &[
            ("out_dir", "out-second"),
            ("eval_interval", "500"),
            ("log_interval", "1"),
            ("always_save_checkpoint", "True"),
            ("wandb_log", "True"),
            ("wandb_project", "other"),
            ("wandb_run_name", "second"),
            ("learning_rate", "0.001"),
            ("weight_decay", "1e-1"),
            ("decay_lr", "True"),
            ("init_from", "scratch"),
            ("bias", "False"),
            ("grad_clip", "1.0"),
        ],
    },
    Planted {
        vocabulary: "neox",
        base: "pipe_parallel_size = 0\nmodel_parallel_size = 2\nnum_layers = 12\nhidden_size = 768\n\
               num_attention_heads = 12\nseq_length = 2048\nmax_position_embeddings = 2048\nnorm = layernorm\n\
               pos_emb = rotary\nno_weight_tying = true\ngpt_j_residual = false\noutput_layer_parallelism = column\n\
               scaled_upper_triang_masked_softmax_fusion = false\nbias_gelu_fusion = false\ninit_method = small_init\n\
               output_layer_init_method = wang_init\noptimizer.type = Adam\noptimizer.params.lr = 0.0006\n\
               optimizer.params.betas = 0.9,0.95\noptimizer.params.eps = 1.0e-8\nmin_lr = 0.00006\n\
               zero_optimization.stage = 0\nzero_optimization.overlap_comm = True\n\
               train_micro_batch_size_per_gpu = 4\ndata_impl = mmap\ncheckpoint_activations = true\n\
               gradient_clipping = 1.0\nweight_decay = 0.1\nhidden_dropout = 0.0\nattention_dropout = 0.0\n\
               fp16.enabled = true\nfp16.loss_scale = 0\ntrain_iters = 320000\nlr_decay_iters = 320000\n\
               distributed_backend = nccl\nlr_decay_style = cosine\nwarmup = 0.01\ncheckpoint_factor = 10000\n\
               eval_interval = 1000\neval_iters = 10\nlog_interval = 1\nsteps_per_print = 10\n\
               keep_last_n_checkpoints = 4\nwall_clock_breakdown = true\n\
               data-path = ./data/enwik8/enwik8_text_document\nvocab-file = ./data/gpt2-vocab.json\n\
               merge-file = ./data/gpt2-merges.txt",
        confounds: &[
            ("num_layers", "24"),
            ("hidden_size", "1024"),
            ("optimizer.params.lr", "0.0003"),
            ("optimizer.params.betas", "0.9,0.999"),
            ("optimizer.type", "Lion"),
            ("train_micro_batch_size_per_gpu", "8"),
            ("train_iters", "100000"),
            ("warmup", "0.1"),
            ("zero_optimization.stage", "3"),
            ("fp16.loss_scale", "128"),
            ("data-path", "./data/pile/pile_text_document"),
            ("gpt_j_residual", "true"),
            ("pos_emb", "none"),
            ("gradient_accumulation_steps", "2"),
            ("seed", "9"),
            ("load", "checkpoints"),
        ],
        harmless: &[
            ("checkpoint_factor", "500"),
            ("eval_interval", "100"),
            ("log_interval", "10"),
            ("steps_per_print", "1"),
            ("keep_last_n_checkpoints", "1"),
            ("wall_clock_breakdown", "false"),
            ("save", "checkpoints_second"),
            ("tensorboard-dir", "tb"),
            ("log-dir", "logs"),
            ("use_wandb", "true"),
            ("wandb_group", "second"),
            ("num_workers", "8"),
            ("optimizer.params.lr", "6e-4"),
            ("rotary_pct", "1"),
        ],
    },
    Planted {
        vocabulary: "axolotl",
        base: "base_model = NousResearch/Llama-3.2-1B\nload_in_8bit = false\nload_in_4bit = false\nstrict = false\n\
               datasets.0.path = teknium/GPT4-LLM-Cleaned\ndatasets.0.type = alpaca\n\
               dataset_prepared_path = last_run_prepared\nval_set_size = 0.1\noutput_dir = ./outputs/lora-out\n\
               adapter = lora\nlora_model_dir = null\nsequence_len = 2048\nsample_packing = true\n\
               eval_sample_packing = true\npad_to_sequence_len = true\nlora_r = 16\nlora_alpha = 32\n\
               lora_dropout = 0.05\nlora_fan_in_fan_out = null\nlora_target_modules = gate_proj,down_proj,up_proj\n\
               wandb_project = null\nwandb_entity = null\ngradient_accumulation_steps = 2\nmicro_batch_size = 2\n\
               num_epochs = 1\noptimizer = adamw_8bit\nlr_scheduler = cosine\nlearning_rate = 0.0002\n\
               train_on_inputs = false\ngroup_by_length = false\nbf16 = auto\nfp16 = null\ntf32 = false\n\
               gradient_checkpointing = true\nflash_attention = true\nwarmup_steps = 10\nevals_per_epoch = 4\n\
               saves_per_epoch = 1\nweight_decay = 0.0\nspecial_tokens.pad_token = <|end_of_text|>",
        confounds: &[
            ("base_model", "NousResearch/Llama-3.2-3B"),
            ("load_in_4bit", "true"),
            ("datasets.0.path", "tatsu-lab/alpaca"),
            ("datasets.1.path", "tatsu-lab/alpaca"),
            ("adapter", "qlora"),
            ("sequence_len", "4096"),
            ("sample_packing", "false"),
            ("lora_r", "32"),
            ("lora_target_modules", "q_proj"),
            ("micro_batch_size", "4"),
            ("num_epochs", "3"),
            ("optimizer", "adamw_torch"),
            ("learning_rate", "0.0001"),
            ("bf16", "false"),
            ("flash_attention", "false"),
            ("warmup_steps", "100"),
            ("special_tokens.pad_token", "<pad>"),
            ("seed", "7"),
        ],
        harmless: &[
            ("output_dir", "./outputs/second"),
            ("dataset_prepared_path", "prepared"),
            ("wandb_project", "p"),
            ("wandb_entity", "e"),
            ("wandb_name", "second"),
            ("saves_per_epoch", "2"),
            ("evals_per_epoch", "1"),
            ("logging_steps", "1"),
            ("save_total_limit", "1"),
            ("hub_model_id", "x/y"),
            ("dataloader_num_workers", "4"),
            ("use_tensorboard", "true"),
            ("learning_rate", "2e-4"),
            ("lora_model_dir", ""),
        ],
    },
];

type Keys = Vec<(String, String)>;

fn keys(base: &str) -> Keys {
    let parts = base.lines().filter_map(|line| line.split_once(" = "));
    parts.map(|(key, value)| (key.trim().to_owned(), value.to_owned())).collect()
}

/// The same keys with one of them changed, added, or for an empty value left out.
fn with(keys: &Keys, key: &str, value: &str) -> Keys {
    let mut changed = keys.clone();
    changed.retain(|(name, _)| name != key);
    if !value.is_empty() {
        changed.push((key.to_owned(), value.to_owned()));
    }
    changed
}

fn configuration(name: &str, keys: &Keys) -> Experiment {
    let keys = keys.iter().map(|(key, value)| (1, key.as_str(), value.as_str()));
    Experiment::of_keys(name, "x", &Names::default(), keys).unwrap()
}

/// Both arms as rows of a table: CSV with a separator, or Markdown for `|`.
fn as_table(arms: [&Keys; 2], separator: char) -> Vec<Experiment> {
    let columns: std::collections::BTreeSet<&str> =
        arms.iter().flat_map(|keys| keys.iter().map(|(key, _)| key.as_str())).collect();
    let row = |name: &str, keys: Option<&Keys>| {
        let cell = |column: &&str| match keys {
            None => (*column).to_owned(),
            Some(keys) => {
                let cell = keys.iter().find(|(key, _)| key == column);
                let cell = cell.map_or("", |(_, value)| value.as_str());
                if cell == "null" { String::new() } else { cell.to_owned() }
            }
        };
        let cells: Vec<String> =
            [name.to_owned()].into_iter().chain(columns.iter().map(cell)).collect();
        match separator {
            '\t' => cells.join("\t"),
            '|' => format!("| {} |", cells.join(" | ").replace("<|", "<\\|").replace("|>", "\\|>")),
            _ => cells
                .iter()
                .map(|cell| format!("\"{cell}\""))
                .collect::<Vec<_>>()
                .join(&separator.to_string()),
        }
    };
    let rule = if separator == '|' {
        format!("|{}\n", "---|".repeat(columns.len() + 1))
    } else {
        String::new()
    };
    let text = format!(
        "{}\n{rule}{}\n{}\n",
        row("name", None),
        row("run", Some(arms[0])),
        row("run_canon", Some(arms[1]))
    );
    match separator {
        '|' => markdown("t.md", &text, &Names::default()).unwrap(),
        _ => table_in("t.csv", &text, &Names::default()).unwrap(),
    }
}

/// Both arms as JSON objects.
fn as_records(arms: [&Keys; 2]) -> Vec<Experiment> {
    let row = |name: &str, keys: &Keys| {
        let mut cells = vec![("name".to_owned(), name.to_owned())];
        cells.extend(keys.iter().filter(|(_, value)| value != "null").cloned());
        (1, cells)
    };
    records("t.jsonl", &[row("run", arms[0]), row("run_canon", arms[1])], &Names::default())
        .unwrap()
}

fn audited(set: &[Experiment]) -> AuditReport {
    audit(&subjects(set), &Rules::default(), Findings::default())
}

/// Each way to give two arms, the second of which is treated.
fn sets(one: &Keys, other: &Keys) -> Vec<(&'static str, Vec<Experiment>)> {
    let treated = with(other, "canon_set", "ABCD");
    let untreated = with(one, "canon_set", "null");
    let table = |separator| as_table([&untreated, &treated], separator);
    vec![
        (
            "configuration",
            vec![configuration("run", &untreated), configuration("run_canon", &treated)],
        ),
        ("csv", table(',')),
        ("csv with semicolons", table(';')),
        ("tsv", table('\t')),
        ("markdown", table('|')),
        ("json lines", as_records([&untreated, &treated])),
    ]
}

/// A file in which slots are named is Lingua's, unless another trainer is named.
fn named(set: Vec<Experiment>, vocabulary: &str) -> Vec<Experiment> {
    for experiment in &set {
        assert_eq!(experiment.vocabulary.name, vocabulary);
    }
    set
}

#[test]
fn every_vocabulary_has_ten_planted_differences_of_each_kind() {
    for planted in PLANTED {
        let counts = (planted.confounds.len(), planted.harmless.len());
        assert!(counts.0 >= 10 && counts.1 >= 10, "{}", planted.vocabulary);
    }
}

#[test]
fn planted_confounds_are_found_and_harmless_differences_are_not() {
    for Planted { vocabulary, base, confounds, harmless } in PLANTED {
        let base = keys(base);
        for (format, set) in sets(&base, &base) {
            let report = audited(&named(set, vocabulary));
            assert!(report.findings.is_empty(), "{vocabulary} {format}: {:?}", report.findings);
            assert_eq!((report.pairs.len(), report.clean.len()), (1, 1), "{vocabulary} {format}");
            assert!(report.unknown.is_empty(), "{vocabulary} {format}: {:?}", report.unknown);
        }
        for (key, value) in *confounds {
            for (format, set) in sets(&base, &with(&base, key, value)) {
                let report = audited(&named(set, vocabulary));
                assert!(report.fails() && report.clean.is_empty(), "{vocabulary} {format}: {key}");
            }
        }
        for (key, value) in *harmless {
            for (format, set) in sets(&base, &with(&base, key, value)) {
                let report = audited(&named(set, vocabulary));
                let shown = &report.findings;
                assert!(!report.fails(), "{vocabulary} {format}: {key}: {shown:?}");
                assert_eq!(report.clean.len(), 1, "{vocabulary} {format}: {key}: {shown:?}");
            }
        }
    }
}

/// What follows from the keys of one file, and nothing else.
#[test]
fn nothing_is_invented_about_files_of_public_projects() {
    const DERIVED: [&str; 4] = [
        "batch.tokens_per_step",
        "budget.tokens",
        "optimizer.lr_wd_steps",
        "schedule.warmup_share",
    ];
    for Planted { vocabulary, base, .. } in PLANTED {
        let base = keys(base);
        let subject = &subjects(&[configuration("run", &base)])[0];
        assert_eq!(subject.vocabulary.name, *vocabulary);
        for (path, fact) in &subject.facts {
            let derived = DERIVED.contains(&path.as_str());
            assert!(fact.written || derived, "{vocabulary}: {path} {}", fact.value);
            if derived {
                continue;
            }
            let name = subject.written_as.get(path).unwrap_or(path);
            let (_, cell) = base.iter().find(|(key, _)| key == name).unwrap();
            let same = audit::KeyValue::parse(cell).is_some_and(|value| value == fact.value);
            assert!(same, "{vocabulary}: {path} is {}, not {cell}", fact.value);
        }
    }
}

/// The size of a model is the file's, in whatever words.
#[test]
fn a_model_of_a_hydra_file_keeps_its_size() {
    let keys = |width: &str| -> Keys {
        [
            ("model.layers", "12"),
            ("model.width", width),
            ("optimizer.lr", "3e-4"),
            ("trainer.max_steps", "1000"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .to_vec()
    };
    let set = [configuration("small", &keys("768")), configuration("large", &keys("1024"))];
    assert!(set.iter().all(|experiment| experiment.vocabulary.name == "generic"));
    for subject in subjects(&set) {
        assert_eq!(subject.size, "?");
        assert!(subject.facts.values().all(|fact| fact.written), "{:?}", subject.facts);
    }
    let report = audited(&set);
    assert!(!format!("{:?}", report.findings).contains("512"));
}

#[test]
fn a_vocabulary_can_be_named() {
    let keys = [(1, "learning_rate", "1e-3"), (2, "logging_steps", "5")];
    for (name, ours) in [("transformers", true), ("generic", false)] {
        let names = Names::of_vocabulary(Vocabulary::named(name).unwrap());
        let read = Experiment::of_keys("run", "x", &names, keys).unwrap();
        assert_eq!(read.values.contains_key("optimizer.lr"), ours, "{name}");
        assert_eq!(read.unknown.is_empty(), ours, "{name}");
    }
}

/// `train.lr is optimizer.lr`, in a rules file.
#[test]
fn a_rules_file_says_what_a_key_is() {
    let rules =
        audit::rules("[keys]\n\"train.lr\" = \"optimizer.lr\"\n\"train.x\" = \"setup\"\n").unwrap();
    let names = Names { vocabulary: None, own: rules.is.clone() };
    let text = "name,canon_set,train.lr,train.x\na,,0.1,1\na_canon,ABCD,0.2,2\n";
    let mut set = table_in("t.csv", text, &names).unwrap();
    set.iter_mut().for_each(|experiment| experiment.declare(&rules.keys));
    let report = audit(&subjects(&set), &rules, Findings::default());
    let keys: Vec<(&str, &str)> =
        report.findings.iter().map(|(_, f)| (f.rule.as_str(), f.key.as_str())).collect();
    assert_eq!(keys, [("twin-training", "optimizer.lr"), ("twin-cosmetic", "train.x")]);
    for (text, says) in [
        ("[keys]\n\"train.lr\" = \"optimizer.lrr\"\n", "did you mean `optimizer.lr`?"),
        (
            "[keys]\n\"optimizer.lr\" = \"optimizer.eps\"\n",
            "give our names only to keys of another program",
        ),
        ("[keys]\n\"train.lr\" = \"data.sources.*\"\n", "write the field's whole name"),
    ] {
        assert_eq!(audit::rules(text).unwrap_err()[0].help, says);
    }
}
