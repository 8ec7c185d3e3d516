//! Every field of the table behaves as its class promises.

use lab::experiment::Experiment;
use lab::field::{Class, FieldValue, Fields, Kind, Origin, TABLE, UNBOUND, find};
use lab::lock::{Lock, write};

use support::locks::{DEPO, SMALL, TEXT, compiled_text, experiment_of, locked, small};
use support::planted::{DECIDING, another_value, bases_of, has, settle};

fn bases() -> Vec<Experiment> {
    bases_of(&small())
}

#[test]
fn each_class_enters_the_digests_it_should_and_no_other() {
    let bases = bases();
    let mut mutated = 0;
    for def in TABLE.iter().filter(|def| def.origin != Origin::Derived) {
        let base = bases.iter().find(|base| has(base, def));
        let base = base.unwrap_or_else(|| panic!("no base has {}", def.path));
        let Some(value) = another_value(def, base.value(def.path)) else {
            // The field has only one word, but it is in the id, so that a second one can be added.
            assert_eq!(def.class, Class::Semantic, "{}", def.path);
            assert!(base.train_text().contains(&format!("{} = ", def.path)), "{}", def.path);
            continue;
        };
        let mut values = Fields::from([(def.path.to_owned(), value)]);
        // These fields add and remove others: `what_decides_which_fields_exist` mutates them.
        if DECIDING.contains(&def.path) {
            continue;
        }
        settle(def, base, &mut values);
        let changed = base.with(base.name.clone(), &values);
        let changed = changed.unwrap_or_else(|e| panic!("{}: {e:?}", def.path));
        let same = |a, b| a == b;
        let (old, new) = (base.digests, changed.digests);
        let got = [
            same(old.train, new.train),
            same(old.eval, new.eval),
            same(old.platform, new.platform),
        ];
        let want = match def.class {
            Class::Semantic => [false, false, true],
            Class::Measured => [true, false, true],
            Class::Platform => [true, true, false],
            // One of these fields sets another trainer's rounding.
            Class::Carried if def.listed() == Class::Platform => [true, true, false],
            Class::Carried | Class::Cosmetic => [true, true, true],
        };
        assert_eq!(got, want, "train, eval, platform kept by a change of {}", def.path);
        // The lock shows the change, whatever its class.
        let [before, after] = [base, &changed].map(|e| write(&Lock::Experiment(e.clone())));
        assert_ne!(before, after, "{}", def.path);
        mutated += 1;
    }
    assert!(mutated > 60, "{mutated}");
}

/// A recipe with another `data` or `schedule`, otherwise equal.
fn with_section(section: &str, written: &str) -> Experiment {
    let line = DEPO.lines().find(|line| line.starts_with(section)).unwrap();
    experiment_of(&DEPO.replace(line, &format!("{section} = {{ {written} }}")), &small())
}

/// Every word of a deciding field, each with as few other fields as possible.
fn words_of(path: &str) -> Vec<Experiment> {
    let texts: Vec<String> = match path {
        "data.task" => [
            "task = \"brevo\", brevo.N = 12",
            "task = \"capo\", capo.N = 12",
            "task = \"depo\", depo.N = 12, depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2",
            "task = \"lano\", lano.config = \"cfg3f\"",
            "task = \"mano\", mano.L = 4, loss_on = \"all\"",
            "task = \"multihop\", multihop.N = 3, multihop.hops = 1",
            "task = \"text\", source = \"nemotron_cc\"",
        ]
        .map(|rest| format!("seq_len = 512, {rest}"))
        .to_vec(),
        "data.tokenizer" => ["bytes", "huggingface", "sentencepiece", "tiktoken"]
            .map(|kind| {
                let vocab = if kind == "bytes" { "" } else { ", tokenizer_vocab = 258" };
                format!(
                    "seq_len = 512, task = \"text\", source = \"x\", tokenizer = \"{kind}\"{vocab}"
                )
            })
            .to_vec(),
        "data.shuffle" => ["buffer", "documents", "windows"]
            .map(|word| {
                let buffer = if word == "buffer" { ", shuffle_buffer = 8" } else { "" };
                format!("seq_len = 512, task = \"text\", source = \"x\", shuffle = \"{word}\"{buffer}")
            })
            .to_vec(),
        "optimizer.kind" => ["adamw", "muon"]
            .map(|kind| format!("kind = \"{kind}\", lr = 0.003, weight_decay = 0.0133"))
            .to_vec(),
        _ => ["constant", "cosine", "inv_sqrt", "linear", "wsd"]
            .map(|kind| {
                let warmup = if kind == "constant" { "" } else { ", warmup = 60" };
                format!("kind = \"{kind}\"{warmup}")
            })
            .to_vec(),
    };
    let section = path.split('.').next().unwrap();
    texts.iter().map(|text| with_section(section, text)).collect()
}

/// The lines without the fields that depend on `on`, and without fields that follow from those.
fn without_dependents(text: &str, on: &str) -> Vec<String> {
    let follows =
        ["data.loss_on", "data.task_digest", "evaluation.metrics", "optimizer.groups", "train"];
    let stays = |line: &&str| {
        let path = line.split(" = ").next().unwrap();
        let depends = find(path).is_some_and(|def| def.only.is_some_and(|(by, _)| by == on));
        !depends && !follows.contains(&path)
    };
    text.lines().filter(stays).map(str::to_owned).collect()
}

#[test]
fn fields_that_decide_which_fields_exist_are_in_the_id() {
    use compiler::digest::Digest;
    for path in DECIDING.into_iter().chain(["data.shuffle"]) {
        let Kind::Word(words, _) = find(path).unwrap().kind else { panic!("{path}") };
        assert_eq!(find(path).unwrap().class, Class::Semantic);
        let all = words_of(path);
        let word = |e: &Experiment| e.value(path).unwrap().plain();
        assert_eq!(all.iter().map(word).collect::<Vec<_>>(), words, "{path}");
        for (at, a) in all.iter().enumerate() {
            // The id covers exactly this text, so both differ together.
            assert_eq!(a.id(), Digest::of("canonc.train.v1", &a.train_text()), "{path}");
            for b in all.iter().skip(at + 1) {
                let name = format!("{path}: {} and {}", word(a), word(b));
                // Of the lines that both have, only this field's differs; without it, two words would share an id.
                let [left, right] = [a, b].map(|e| {
                    let mut lines = without_dependents(&e.train_text(), path);
                    // The word that older locks imply has no line.
                    let line = format!("{path} = {}", e.value(path).unwrap());
                    if !lines.contains(&line) {
                        assert_eq!(find(path).unwrap().neutral, e.value(path).unwrap().to_string());
                        lines.push(line);
                        lines.sort();
                    }
                    lines
                });
                assert_eq!(left.len(), right.len(), "{name}");
                let lines = left.iter().zip(&right).filter(|(l, r)| l != r);
                let [l, r] = [a, b].map(|e| format!("{path} = {}", e.value(path).unwrap()));
                assert_eq!(lines.collect::<Vec<_>>(), [(&l, &r)], "{name}");
                let [left, right] = [a, b].map(|e| without_dependents(&e.eval_text(), path));
                assert_eq!(left, right, "{name}");
                assert_ne!(a.digests.train, b.digests.train, "{name}");
                assert_ne!(a.digests.eval, b.digests.eval, "{name}");
                assert_eq!(a.digests.platform, b.digests.platform, "{name}");
                let [l, r] = [a, b].map(|e| write(&Lock::Experiment(e.clone())));
                assert_ne!(l, r, "{name}");
            }
        }
        // Each dependent field is in the digest of its class, if it is there.
        for def in TABLE.iter().filter(|def| def.only.is_some_and(|(on, _)| on == path)) {
            for experiment in &all {
                let Some(value) = experiment.value(def.path) else { continue };
                if !def.enters(value) {
                    continue;
                }
                let text = match def.class {
                    Class::Semantic => experiment.train_text(),
                    Class::Measured => experiment.eval_text(),
                    Class::Platform => experiment.platform_text(),
                    Class::Carried | Class::Cosmetic => continue,
                };
                let line = format!("{} = {value}", def.path);
                assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
            }
        }
    }
}

#[test]
fn the_arch_is_in_the_id_by_its_graph_and_manifest_alone() {
    let id = |text: &str, name: &str| experiment_of(DEPO, &locked(&compiled_text(text, name))).id();
    let base = id(SMALL, "small");
    // Another way to write the same arch, under another name.
    let rewritten = "
        /// The same, unrolled by hand over a layer of one's own.
        arch other {
          dim 8  norm_eps 0.00001  vocab 10400
          init lingua
          layers [
            mine { mixer attention { heads 2  kv_heads 2 } mlp swiglu { hidden 16 } },
            mine { mixer attention { heads 2 } mlp swiglu { multiple_of 1  hidden 16 } },
          ]
        }
        block mine(y; mixer, mlp) {
          z = y + mixer(slot A(rms_norm pre_mixer (y)))
          z + mlp(slot C(rms_norm pre_mlp (z)))
        }";
    assert_eq!(id(rewritten, "other"), base);
    for (from, to) in
        [("hidden 16", "hidden 24"), ("norm_eps 1e-5", "norm_eps 1e-6"), ("2 of", "3 of")]
    {
        assert_ne!(id(&SMALL.replace(from, to), "small"), base, "{to}");
    }
    assert_ne!(id(SMALL, "smallcanon"), base);
}

#[test]
fn derived_values_are_exact_and_listed() {
    let bases = bases();
    for def in TABLE.iter().filter(|def| def.origin == Origin::Derived) {
        let bound = |base: &Experiment| {
            let digest = FieldValue::text("ab".repeat(32));
            let values = Fields::from([
                ("data.digest".to_owned(), digest),
                ("data.tokens".to_owned(), FieldValue::Int(6400)),
            ]);
            base.with("bound".to_owned(), &values).unwrap()
        };
        let matrices = Fields::from([("optimizer.decay".to_owned(), FieldValue::text("matrices"))]);
        let matrices = bases[0].with("matrices".to_owned(), &matrices).unwrap();
        let frozen = Fields::from([(
            "optimizer.frozen".to_owned(),
            FieldValue::List(vec![FieldValue::text(":embed")]),
        )]);
        let frozen = bases[0].with("frozen".to_owned(), &frozen).unwrap();
        let all = bases.iter().cloned().chain([bound(&bases[2]), matrices, frozen]);
        let listed = all.into_iter().any(|base| {
            write(&Lock::Experiment(base))
                .lines()
                .any(|l| l.starts_with(&format!("{} = ", def.path)))
        });
        assert!(listed, "{}", def.path);
    }
    let value = |base: usize, path: &str| bases[base].value(path).unwrap().to_string();
    // The release keeps lr x wd x steps at 9.6 (9.58 where 0.0133 is rounded).
    let text = DEPO.replace("steps = 600", "steps = 240000");
    for (lr, wd, product) in [("0.002", "0.02", "9.6"), ("0.003", "0.0133", "9.576")] {
        let text = text.replace("0.003", lr).replace("0.0133", wd);
        let experiment = experiment_of(&text, &small());
        assert_eq!(experiment.value("optimizer.lr_wd_steps").unwrap().to_string(), product);
    }
    assert_eq!(value(0, "schedule.warmup_share"), "0.1");
    assert_eq!(value(0, "batch.tokens_per_step"), "4096");
    assert_eq!(value(0, "budget.tokens"), "2457600");
    assert_eq!(value(1, "budget.steps"), "100");
    // 2457600 tokens of training at some 3e5 FLOP each, as an integer of any size.
    let per_token = bases[0].analysis.train_flops_per_token;
    assert_eq!(value(0, "budget.flops"), (per_token * 2_457_600).to_string());
    let shares = experiment_of(&DEPO.replace("warmup = 60", "warmup = 20"), &small());
    assert_eq!(shares.value("schedule.warmup_share").unwrap().to_string(), "\"1/30\"");
}

#[test]
fn a_budget_means_the_same_however_it_is_written() {
    let arch = small();
    let steps = experiment_of(DEPO, &arch);
    let tokens = experiment_of(&DEPO.replace("steps = 600", "tokens = 2457600"), &arch);
    assert_eq!(steps.budget, tokens.budget);
    assert_eq!(steps.digests, tokens.digests);
    assert_ne!(write(&Lock::Experiment(steps)), write(&Lock::Experiment(tokens)));
}

#[test]
fn a_step_means_the_same_however_it_is_written() {
    let arch = small();
    let counted =
        experiment_of(&DEPO.replace("sequences = 32", "sequences = 8, micro_batches = 4"), &arch);
    let tokens = DEPO.replace("sequences = 32", "sequences = 8, tokens_per_step = 4096");
    let tokens = experiment_of(&tokens, &arch);
    assert_eq!(counted.batch, tokens.batch);
    assert_eq!(write(&Lock::Experiment(counted)), write(&Lock::Experiment(tokens.clone())));
    let values = Fields::from([("batch.tokens_per_step".to_owned(), FieldValue::Int(2048))]);
    assert_eq!(tokens.with("x".to_owned(), &values).unwrap().batch.micro_batches, 2);
}

/// A newer field is not written at its neutral value, so that older locks do not change.
#[test]
fn a_younger_field_is_written_where_it_differs() {
    let text = |recipe: &str| write(&Lock::Experiment(experiment_of(recipe, &small())));
    let plain = text(TEXT);
    assert!(!plain.contains("lingua.") && !plain.contains("gated_norm"));
    let text_with_fields = text(&format!(
        "{TEXT}lingua = {{ seed = 777, read_s3 = true }}\nplatform = {{ devices = 128 }}\n"
    ));
    assert!(
        text_with_fields.contains("lingua.read_s3 = true\n")
            && !text_with_fields.contains("lingua.seed")
    );
    assert!(text_with_fields.contains("platform.devices = 128\n"));
    assert_eq!(write(&lab::lock::read("x", &text_with_fields).unwrap()), text_with_fields);
}

#[test]
fn the_name_of_bound_data_has_no_effect() {
    let arch = small();
    let open = experiment_of(TEXT, &arch);
    assert_eq!(
        find("data.digest").unwrap().kind.describe(),
        format!("64 hexadecimal digits, or \"{UNBOUND}\"")
    );
    let digest = ("data.digest".to_owned(), FieldValue::text("ab".repeat(32)));
    let renamed = ("data.source".to_owned(), FieldValue::text("c4"));
    let with = |fields: Fields| open.with("x".to_owned(), &fields).unwrap();
    let bound = with(Fields::from([digest.clone()]));
    assert_ne!(bound.id(), open.id());
    assert_eq!(with(Fields::from([digest, renamed.clone()])).id(), bound.id());
    assert_ne!(with(Fields::from([renamed])).id(), open.id());
}

#[test]
fn decayed_parameters_are_in_the_id_by_path() {
    use compiler::digest::Digest;
    let matrices = DEPO.replace("lr = 0.003", "decay = \"matrices\", lr = 0.003");
    let experiment = experiment_of(&matrices, &small());
    let manifest = &experiment.arch.identity().manifest_text;
    let paths = manifest.lines().map(|line| line.split(' ').next().unwrap());
    let decayed = paths.filter(|path| !path.contains("pre_") && !path.ends_with("norm"));
    let lines: String = decayed.map(|path| format!("{path}\n")).collect();
    assert_eq!(lines.lines().count(), 2 + 2 * 7);
    let value = experiment.value("optimizer.decayed").unwrap().plain();
    assert_eq!(value, Digest::of("canonc.decayed.v1", &lines).to_string());
    assert!(experiment.train_text().contains(&value));
    assert!(experiment_of(DEPO, &small()).value("optimizer.decayed").is_none());
}

#[test]
fn weights_are_shares_whatever_their_unit() {
    let weighted = |weights: &str| {
        experiment_of(&TEXT.replace("seq_len", &format!("weights = {weights}, seq_len")), &small())
    };
    let six = weighted("[6, 3, 1]");
    assert_eq!(six.value("data.weights").unwrap().to_string(), "[6, 3, 1]");
    for same in ["[60, 30, 10]", "[600000000000, 300000000000, 100000000000]"] {
        assert_eq!(weighted(same).id(), six.id(), "{same}");
    }
    for other in ["[6, 3, 2]", "[3, 6, 1]", "[6, 3, 1, 0]", "[1, 1, 1]", "[]"] {
        assert_ne!(weighted(other).id(), six.id(), "{other}");
    }
    assert_eq!(weighted("[0, 4]").value("data.weights").unwrap().to_string(), "[0, 1]");
    // An older lock reads back with the same id.
    let id = six.id();
    let text = write(&Lock::Experiment(six));
    let lab::lock::Lock::Experiment(read) = lab::lock::read("x.lock", &text).unwrap() else {
        panic!()
    };
    assert_eq!(read.id(), id);
}

/// Locks from before the field existed: documents are shuffled, and no line says so.
#[test]
fn a_lock_without_a_shuffle_keeps_its_order_and_its_id() {
    let shuffled = |word: &str| {
        experiment_of(&TEXT.replace("seq_len", &format!("shuffle = \"{word}\", seq_len")), &small())
    };
    let old = shuffled("documents");
    let text = write(&Lock::Experiment(old.clone()));
    assert!(!text.contains("data.shuffle"), "{text}");
    let Lock::Experiment(read) = lab::lock::read("old.lock", &text).unwrap() else { panic!() };
    assert_eq!(read.id(), old.id());
    assert_eq!(read.value("data.shuffle").unwrap().plain(), "documents");
    // A lock built today has a line for its order.
    let new = experiment_of(TEXT, &small());
    assert!(new.train_text().contains("data.shuffle = \"windows\"\n"));
    assert_eq!(new.id(), shuffled("windows").id());
    assert_ne!(new.id(), old.id());
}
