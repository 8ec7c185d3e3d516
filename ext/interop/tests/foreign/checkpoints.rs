//! The reference's own checkpoints (tests/golden/checkpoints): imported, exported, imported again, and damaged.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use compiler::program::Compiled;
use interop::arch;
use interop::dtype::Dtype;
use interop::export::{self, To};
use interop::import::{Imported, Request, read};
use interop::init::Init;
use interop::model::{Mixer, QkNorm, RopeLayout};
use interop::store::Store;
use lab::experiment::{Experiment, LockedArch};
use lab::recipe;
use support::golden::folders;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/checkpoints")
}

fn import(source: &Path, devices: Option<i64>) -> Imported {
    read(&Request { source, name: Some("model"), devices, weights: true })
        .unwrap_or_else(|error| panic!("{error}"))
}

fn refused(source: &Path) -> String {
    read(&Request { source, name: Some("model"), devices: None, weights: true })
        .unwrap_err()
        .to_string()
}

/// Every tensor of a safetensors file, as bits.
fn bits(path: &Path) -> BTreeMap<String, (Vec<i64>, Vec<u32>)> {
    let store = Store::single(path).unwrap();
    let tensors = store.tensors.iter().map(|(name, stored)| {
        let values = store.values(name, 0, stored.count()).unwrap();
        (name.clone(), (stored.shape.clone(), values.iter().map(|v| v.to_bits()).collect()))
    });
    tensors.collect()
}

/// The experiment of an imported recipe, if it is complete.
fn experiment(imported: &Imported) -> Option<Experiment> {
    let text = imported.recipe()?;
    let arch = std::rc::Rc::new(LockedArch::new(&imported.compiled).unwrap());
    let mut sources = dsl::Sources::new();
    let file = sources.add("recipes/model.toml", &text);
    let (recipe, diagnostics) = recipe::read(&sources, file);
    let recipe = recipe.unwrap_or_else(|| panic!("{}", dsl::render(&sources, &diagnostics)));
    recipe.experiments("model", "", &|_| Some(std::rc::Rc::clone(&arch))).0.into_iter().next()
}

#[derive(Clone, Copy)]
struct Given<'a> {
    imported: &'a Imported,
    experiment: Option<&'a Experiment>,
    weights: Option<&'a Path>,
    dtype: Dtype,
}

fn export(given: Given<'_>, to: To, out: &Path) -> Vec<String> {
    let request = export::Request {
        compiled: &given.imported.compiled,
        experiment: given.experiment,
        weights: given.weights,
        to,
        dtype: given.dtype,
        gpus_per_node: 8,
        ranks: None,
        comparison: None,
        origin: None,
        tokenizer: Err("No tokenizer is in this folder."),
        imported_text: None,
        initial: None,
    };
    export::write(&request, out).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn import_then_export_then_import_is_the_identity() {
    for name in &folders("checkpoints") {
        let dir = tempfile::tempdir().unwrap();
        let first = import(&golden().join(name), None);
        let ours = dir.path().join("ours");
        first.write(&ours).unwrap();
        let weights = ours.join("weights.safetensors");
        let before = bits(&weights);
        assert_eq!(before.len(), first.params().len(), "{name}");
        for (to, folder) in [(To::Release, "hf"), (To::Lingua, "lingua")] {
            // The published loader gives every Llama an untied head (tests/foreign/configs.rs).
            if name == "hf_llama_tied" && to == To::Lingua {
                continue;
            }
            let out = dir.path().join(folder);
            let given = Given {
                imported: &first,
                experiment: None,
                weights: Some(&weights),
                dtype: Dtype::F32,
            };
            export(given, to, &out);
            let again = import(&out, None);
            let both = [&first, &again].map(|i| i.compiled.identity.clone());
            assert_eq!(both[0].graph_text, both[1].graph_text, "{name} {folder}");
            assert_eq!(both[0].manifest, both[1].manifest, "{name} {folder}");
            assert_eq!(first.described.model, again.described.model, "{name} {folder}");
            let back = dir.path().join(format!("{folder}-back"));
            again.write(&back).unwrap();
            assert_eq!(before, bits(&back.join("weights.safetensors")), "{name} {folder}");
        }
    }
}

#[test]
fn what_lingua_wrote_is_written_again_under_the_same_names() {
    for name in folders("checkpoints").iter().filter(|name| name.starts_with("lingua")) {
        let dir = tempfile::tempdir().unwrap();
        let source = golden().join(name).join("default");
        let first = import(&source, None);
        first.write(&dir.path().join("ours")).unwrap();
        let weights = dir.path().join("ours/weights.safetensors");
        // The kernel of the gated norm is a field of the recipe, and it renames a parameter.
        let mut training = first.training.clone().unwrap();
        for (path, value) in [("schedule.warmup", "1"), ("data.tokenizer", "\"bytes\"")] {
            training.insert(path.to_owned(), value.to_owned());
        }
        let mut trainable = import(&source, None);
        let text = trainable.text.replace("vocab 97", "vocab 258");
        trainable.compiled = arch::compile("model", &text).unwrap();
        trainable.training = Some(training);
        let experiment = experiment(&trainable);
        assert!(experiment.is_some(), "{name}");
        let out = dir.path().join("lingua");
        let given = Given {
            imported: &first,
            experiment: experiment.as_ref(),
            weights: Some(&weights),
            dtype: Dtype::F32,
        };
        export(given, To::Lingua, &out);
        let before = interop::pth::read(&source.join("consolidated.pth")).unwrap().0;
        let after = interop::pth::read(&out.join("default/consolidated.pth")).unwrap().0;
        let shapes = |store: &Store| -> Vec<_> {
            store.tensors.iter().map(|(n, t)| (n.clone(), t.shape.clone())).collect()
        };
        assert_eq!(shapes(&before), shapes(&after), "{name}");
        for (tensor, stored) in &before.tensors {
            let both = [&before, &after].map(|s| s.values(tensor, 0, stored.count()).unwrap());
            assert_eq!(both[0], both[1], "{name} {tensor}");
        }
    }
}

#[test]
fn the_bf16_variant_is_the_default_rounded() {
    let dir = tempfile::tempdir().unwrap();
    let root = golden().join("lingua_llamacanon");
    for variant in ["default", "bf16"] {
        import(&root.join(variant), None).write(&dir.path().join(variant)).unwrap();
    }
    let [wide, narrow] =
        ["default", "bf16"].map(|v| bits(&dir.path().join(v).join("weights.safetensors")));
    for (path, (shape, values)) in &wide {
        let (other, rounded) = &narrow[path];
        assert_eq!(shape, other);
        for (a, b) in values.iter().zip(rounded) {
            assert_eq!(half::bf16::from_f32(f32::from_bits(*a)).to_f32().to_bits(), *b, "{path}");
        }
    }
    // Writing bf16 rounds in the same way.
    let given = import(&root.join("default"), None);
    let weights = dir.path().join("default/weights.safetensors");
    for (to, folder) in [(To::Release, "hf16"), (To::Lingua, "lingua16")] {
        let out = dir.path().join(folder);
        let given = Given {
            imported: &given,
            experiment: None,
            weights: Some(&weights),
            dtype: Dtype::Bf16,
        };
        export(given, to, &out);
        import(&out, None).write(&dir.path().join(format!("{folder}-back"))).unwrap();
        let back = bits(&dir.path().join(format!("{folder}-back/weights.safetensors")));
        assert_eq!(back, narrow, "{folder}");
    }
}

#[test]
fn shards_are_one_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let source = golden().join("hf_llama");
    fs::copy(source.join("config.json"), dir.path().join("config.json")).unwrap();
    let bytes = fs::read(source.join("model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let mut map = Vec::new();
    for (shard, name) in names.into_iter().enumerate() {
        let mut part: Vec<_> = file.tensors().into_iter().collect();
        part.sort_by(|a, b| a.0.cmp(&b.0));
        let part: Vec<_> =
            part.into_iter().enumerate().filter(|(i, _)| i % 2 == shard).map(|(_, t)| t).collect();
        map.extend(part.iter().map(|(tensor, _)| format!("\"{tensor}\": \"{name}\"")));
        let bytes = safetensors::serialize(part, None).unwrap();
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    let index = dir.path().join("model.safetensors.index.json");
    let write = |map: &[String]| {
        fs::write(
            &index,
            format!("{{\"metadata\": {{}}, \"weight_map\": {{{}}}}}", map.join(", ")),
        )
        .unwrap();
    };
    write(&map);
    let out = tempfile::tempdir().unwrap();
    import(dir.path(), None).write(&out.path().join("a")).unwrap();
    import(&source, None).write(&out.path().join("b")).unwrap();
    let [a, b] = ["a", "b"].map(|f| bits(&out.path().join(f).join("weights.safetensors")));
    assert_eq!(a, b);
    // Swapped, missing, and outside the file.
    let mut wrong = map.clone();
    wrong[0] = wrong[0].replace(names[0], names[1]);
    write(&wrong);
    assert!(refused(dir.path()).contains("but the index says"), "{}", refused(dir.path()));
    wrong.remove(0);
    write(&wrong);
    assert!(refused(dir.path()).contains("the index does not list it"));
    wrong[0] = wrong[0].replace(names[0], "../evil.safetensors");
    write(&wrong);
    assert!(refused(dir.path()).contains("not a file in the folder of the index"));
}

/// A copy of a golden checkpoint's folder, with a change to its JSON.
fn changed(name: &str, from: &str, to: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut source = golden().join(name);
    if source.join("default").is_dir() {
        source = source.join("default");
    }
    for entry in fs::read_dir(&source).unwrap() {
        let path = entry.unwrap().path();
        let target = dir.path().join(path.file_name().unwrap());
        fs::write(&target, fs::read(&path).unwrap()).unwrap();
        if path.extension().is_some_and(|e| e == "json")
            && !path.ends_with("generation_config.json")
        {
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{name} has no {from}");
            fs::write(&target, text.replacen(from, to, 1)).unwrap();
        }
    }
    dir
}

/// Checkpoint, text in its configuration, its replacement, text in the error.
const OPTIONS: [(&str, &str, &str, &str); 30] = [
    ("hf_llama", "\"llama\"", "\"qwen2\"", "`model_type` is \"qwen2\""),
    ("hf_llama", "\"hidden_size\": 32", "\"hidden_size\": 48", "but the configuration needs"),
    (
        "hf_llama",
        "\"attention_bias\": false",
        "\"attention_bias\": true",
        "missing: model.layers.0.self_attn.q_proj.bias [32]",
    ),
    (
        "hf_llama",
        "\"rope_scaling\": null",
        "\"rope_scaling\": {\"factor\": 2.0}",
        "`rope_scaling.factor` is 2.0",
    ),
    ("hf_llama", "\"vocab_size\": 97", "\"vocab_size\": 97, \"vocab_size\": 98", "is on line"),
    (
        "hf_llama",
        "\"rms_norm_eps\": 1e-05",
        "\"rms_norm_eps\": Infinity",
        "`rms_norm_eps` is Infinity",
    ),
    (
        "hf_llama",
        "\"vocab_size\": 97",
        "\"vocab_size\": 97, \"num_experts\": 8",
        "`num_experts` is 8, and this key is unknown",
    ),
    (
        "hf_llama",
        "\"tie_word_embeddings\": false",
        "\"tie_word_embeddings\": true",
        "tied to model.embed_tokens.weight but differs",
    ),
    ("hf_llamacanon", "\"canon_bias\": false", "\"canon_bias\": true", "`canon_bias` is true"),
    (
        "hf_llamacanon",
        "\"canon_kernel\": 4",
        "\"canon_kernel\": 3",
        "but the configuration needs [32, 1, 3]",
    ),
    ("hf_llamacanon", "\"rope_dim\": 4", "\"rope_dim\": 0", "`rope_dim` is 0"),
    ("hf_llamacanon", "\"ABCD\"", "\"ABCE\"", "`E` is not a slot"),
    (
        "hf_llamacanon",
        "\"rope_version\": \"lingua\"",
        "\"rope_version\": \"yarn\"",
        "`rope_version` is \"yarn\"",
    ),
    (
        "lingua_llamacanon",
        "\"head_dim\": null",
        "\"head_dim\": 16",
        "but the configuration needs [64, 32]",
    ),
    (
        "lingua_llamacanon",
        "\"ffn_dim_multiplier\": null",
        "\"ffn_dim_multiplier\": 4.0",
        "but the configuration needs",
    ),
    (
        "lingua_llamacanon",
        "\"multiple_of\": 256",
        "\"multiple_of\": 32",
        "but the configuration needs [96, 32]",
    ),
    (
        "lingua_llamacanon",
        "\"weight_tying\": false",
        "\"weight_tying\": true",
        "it is tied to tok_embeddings.weight but differs from it",
    ),
    (
        "lingua_llamacanon",
        "\"init_std_factor\": \"disabled\"",
        "\"init_std_factor\": \"global_depth\"",
        "`model.init_std_factor` is \"global_depth\"",
    ),
    (
        "lingua_llamacanon",
        "\"sliding_window\": null",
        "\"sliding_window\": 128",
        "`model.sliding_window` is 128",
    ),
    ("lingua_gla5", "\"AbbCD\"", "\"ABbCD\"", "`B` is not a slot"),
    (
        "lingua_gla5",
        "\"zeyuan_layernorm\": false",
        "\"zeyuan_layernorm\": true",
        "attn.g_norm_swish_gate.weight",
    ),
    (
        "lingua_gla5",
        "\"qk_norm\": false",
        "\"qk_norm\": true",
        "`model.qk_norm` is true, which has no effect for GLA5",
    ),
    ("lingua_gdn2", "\"AbbCD\"", "\"AbbC\"", "missing: trans.model.layers.0.mlp.gate_proj.weight"),
    ("lingua_gdn2", "\"GDN2\"", "\"GLA5\"", "extra: trans.model.layers.0.attn.A_log"),
    ("lingua_gdn2", "\"tp_size\": 1", "\"tp_size\": 2", "`distributed.tp_size` is 2"),
    ("lingua_gdn2", "\"warmup\": 2000", "\"warmup\": \"much\"", "`optim.warmup` is \"much\""),
    (
        "lingua_mamba2",
        "\"norm_eps\": 1e-05",
        "\"norm_eps\": 1e-06",
        "`model.norm_eps` is 1e-06, which Mamba2 stores and never reads",
    ),
    (
        "lingua_mamba2",
        "\"mamba_ssm\": 64",
        "\"mamba_ssm\": 128",
        "shape: trans.backbone.layers.0.mixer.in_proj.weight",
    ),
    ("lingua_mamba2", "\"mlp10\"", "\"mlp11\"", "`model.mlp_type` is \"mlp11\""),
    ("lingua_mamba2", "\"n_views\": 2", "\"n_views\": 3", "`data.n_views` is 3"),
];

#[test]
fn each_option_is_honoured_or_refused_by_name() {
    for (name, from, to, wanted) in OPTIONS {
        let dir = changed(name, from, to);
        let error = refused(dir.path());
        assert!(error.contains(wanted), "{name}: {from} -> {to} says\n{error}");
        assert!(
            error.contains(".json") || error.contains(".pth") || error.contains(".safetensors"),
            "{error}"
        );
    }
}

#[test]
fn options_that_the_releases_loader_drops_reach_the_arch() {
    for (from, to, wanted) in [
        ("\"canon_residual\": true", "\"canon_residual\": false", "residual false"),
        ("\"canon_activation\": false", "\"canon_activation\": true", "activation silu"),
        ("\"rope_theta\": 10000.0", "\"rope_theta\": 500000.0", "theta 5e5"),
        ("\"norm_eps\": 1e-05", "\"norm_eps\": 1e-06", "norm_eps 1e-6"),
    ] {
        let dir = changed("lingua_llamacanon", from, to);
        let text = import(dir.path(), None).text;
        assert!(text.contains(wanted), "{to}: {text}");
    }
    // If only head_dim is given, n_heads follows from it.
    let dir = changed(
        "lingua_llamacanon",
        "\"head_dim\": null, \"n_heads\": 4",
        "\"head_dim\": 8, \"n_heads\": null",
    );
    assert!(import(dir.path(), None).text.contains("heads 4"));
}

/// Rewrites one tensor of a golden Hugging Face folder.
fn with_tensors(
    name: &str,
    change: impl Fn(&mut BTreeMap<String, (safetensors::Dtype, Vec<usize>, Vec<u8>)>),
) -> tempfile::TempDir {
    let dir = changed(name, "\"vocab_size\": 97", "\"vocab_size\": 97");
    let path = dir.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: BTreeMap<_, _> = file
        .tensors()
        .into_iter()
        .map(|(name, view)| (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec())))
        .collect();
    change(&mut tensors);
    let views: Vec<_> = tensors
        .iter()
        .map(|(name, (dtype, shape, data))| {
            (name, safetensors::tensor::TensorView::new(*dtype, shape.clone(), data).unwrap())
        })
        .collect();
    fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
    dir
}

#[test]
fn every_tensor_is_used_checked_or_refused() {
    use safetensors::Dtype::{F32, I32};
    let norm = "model.norm.weight";
    let dir = with_tensors("hf_llama", |t| {
        t.remove(norm);
        t.insert("tok_embeddings.weight".to_owned(), (F32, vec![2], vec![0; 8]));
    });
    let error = refused(dir.path());
    assert!(error.contains("missing: model.norm.weight [32]"), "{error}");
    assert!(error.contains("extra: tok_embeddings.weight [2], a name of Lingua Llama"), "{error}");
    let dir = with_tensors("hf_llama", |t| t.get_mut(norm).unwrap().0 = I32);
    let error = refused(dir.path());
    assert!(error.contains("dtype: model.norm.weight is I32"), "{error}");
    for hole in [f32::NAN, f32::INFINITY] {
        let dir = with_tensors("hf_llama", |t| {
            t.get_mut(norm).unwrap().2[8..12].copy_from_slice(&hole.to_le_bytes());
        });
        let imported = import(dir.path(), None);
        let out = dir.path().join("out");
        let error = imported.write(&out).unwrap_err().to_string();
        assert!(error.contains(&format!("`model.norm.weight` [32] has {hole} at 2")), "{error}");
        assert!(!out.exists(), "half of it was written");
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains("partial")), "{left:?}");
    }
    // Frequencies that RoPE computes, correct and wrong; a tied head that is a copy of the table.
    let frequencies = |t: &mut BTreeMap<_, _>, theta: f32| {
        let values = (0..4).flat_map(|i| theta.powf(-2.0 * i as f32 / 8.0).to_le_bytes()).collect();
        let name = "model.layers.0.self_attn.rotary_emb.inv_freq".to_owned();
        t.insert(name, (F32, vec![4], values));
    };
    let dir = with_tensors("hf_llama", |t| frequencies(t, 10_000.0));
    assert_eq!(import(dir.path(), None).left_out.len(), 1);
    let dir = with_tensors("hf_llama", |t| frequencies(t, 500_000.0));
    assert!(refused(dir.path()).contains("rope_theta gives"));
    let dir = with_tensors("hf_llama_tied", |t| {
        let table = t["model.embed_tokens.weight"].clone();
        t.insert("lm_head.weight".to_owned(), table);
    });
    assert_eq!(import(dir.path(), None).left_out[0].name, "lm_head.weight");
}

/// Writes weights of an arch, whose values count up from 0.5 in each tensor, under our paths.
fn arbitrary_weights(compiled: &Compiled, path: &Path) {
    let params = compiled.graph.params();
    let tensors: Vec<_> = params
        .iter()
        .map(|p| {
            let count: i64 = p.shape.iter().product();
            let data: Vec<u8> = (0..count).flat_map(|n| (n as f32 + 0.5).to_le_bytes()).collect();
            (p.path.clone(), p.shape.iter().map(|n| *n as usize).collect::<Vec<_>>(), data)
        })
        .collect();
    let views = tensors.iter().map(|(name, shape, data)| {
        let dtype = safetensors::Dtype::F32;
        let view = safetensors::tensor::TensorView::new(dtype, shape.clone(), data).unwrap();
        (name, view)
    });
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn a_plain_llama_of_either_rope_goes_both_ways() {
    // Lingua's plain Llama is exported to stock `transformers` with rows reordered, and reads back unchanged; one with
    // Hugging Face's RoPE layout goes to Lingua and back.
    let dir = tempfile::tempdir().unwrap();
    let mut first = import(&golden().join("hf_llamacanon"), None);
    for (layout, qk_norm, canon, to) in [
        (RopeLayout::Interleaved, false, false, To::Release),
        (RopeLayout::Half, true, true, To::Lingua),
        (RopeLayout::Half, false, false, To::Lingua),
    ] {
        let mut model = first.described.model.clone();
        let Mixer::Attention(attention) = &mut model.mixer else { panic!() };
        attention.layout = layout;
        attention.qk_norm = if qk_norm { QkNorm::Joint } else { QkNorm::None };
        if !canon {
            attention.rope_dims = attention.head_dim;
            model.canon.slots.clear();
        }
        model.init = Init::lingua();
        first.compiled = arch::compile("model", &model.text("model", "Of a test.")).unwrap();
        let weights = dir.path().join(format!("{layout:?}{canon}.safetensors"));
        arbitrary_weights(&first.compiled, &weights);
        let out = dir.path().join(format!("{layout:?}{canon}"));
        let given = Given {
            imported: &first,
            experiment: None,
            weights: Some(&weights),
            dtype: Dtype::F32,
        };
        export(given, to, &out);
        let again = import(&out, None);
        assert!(again.described.is_released() && again.described.turned, "{layout:?}");
        assert_eq!(again.compiled.identity.graph, first.compiled.identity.graph);
        let back = dir.path().join(format!("{layout:?}{canon}-back"));
        again.write(&back).unwrap();
        assert_eq!(bits(&weights), bits(&back.join("weights.safetensors")), "{layout:?} {canon}");
        if to == To::Release {
            // Head 0 of q: even rows first. Rows begin with 0.5, 32.5, 64.5 …
            let theirs = Store::single(&out.join("model.safetensors")).unwrap();
            let q = theirs.values("model.layers.0.self_attn.q_proj.weight", 0, 8 * 32).unwrap();
            let firsts: Vec<f32> = q.chunks(32).map(|row| (row[0] - 0.5) / 32.0).collect();
            assert_eq!(firsts, [0.0, 2.0, 4.0, 6.0, 1.0, 3.0, 5.0, 7.0]);
        }
    }
}
