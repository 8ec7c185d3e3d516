//! Folders as published: with a configuration above the variants, with one variant, with weights of `torch.save`, with
//! names of the language, without weights.

use std::fs;
use std::path::{Path, PathBuf};

use dsl::Problem;
use interop::dtype::Dtype;
use interop::export::{self, To};
use interop::import::{Imported, Request, read};
use interop::source::ArchWeights;
use interop::store::{Planned, Store};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/checkpoints").join(name)
}

fn import(source: &Path) -> Result<Imported, Problem> {
    read(&Request { source, name: Some("model"), devices: None, weights: true })
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::write(to.join(path.file_name().unwrap()), fs::read(&path).unwrap()).unwrap();
    }
}

/// A golden Lingua checkpoint in the release's layout: `default/`, and the class's configuration above it.
fn release(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(&golden(name).join("default"), &dir.path().join("default"));
    let first = import(&golden(name)).unwrap();
    let ours = dir.path().join("ours");
    first.write(&ours).unwrap();
    let request = export::Request {
        compiled: &first.compiled,
        experiment: None,
        weights: Some(&ours),
        to: To::Release,
        dtype: Dtype::F32,
        gpus_per_node: 8,
        ranks: None,
        comparison: None,
        origin: None,
        tokenizer: Err("No tokenizer is in this folder."),
        imported_text: None,
        initial: None,
    };
    export::write(&request, &dir.path().join("hf")).unwrap();
    fs::rename(dir.path().join("hf/config.json"), dir.path().join("config.json")).unwrap();
    for folder in ["ours", "hf"] {
        fs::remove_dir_all(dir.path().join(folder)).unwrap();
    }
    dir
}

#[test]
fn a_release_with_a_configuration_above_is_imported_with_its_weights() {
    for name in [
        "lingua_llamacanon",
        "lingua_gla5",
        "lingua_gla5_ln",
        "lingua_gdn2",
        "lingua_mamba2_noconv",
    ] {
        let dir = release(name);
        let plain = import(&golden(name)).unwrap();
        let config = dir.path().join("config.json");
        for source in [dir.path(), config.as_path()] {
            let imported = import(source).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(imported.weights.is_some() && imported.looked_for.is_empty(), "{name}");
            assert_eq!(imported.compiled.identity, plain.compiled.identity, "{name}");
            let files: Vec<_> =
                imported.files.iter().map(|f| f.path.file_name().unwrap()).collect();
            assert_eq!(files, ["params.json", "config.json", "consolidated.pth"], "{name}");
            let left = imported.left_out.iter().find(|left| left.name == "config.json").unwrap();
            assert!(left.reason.contains("same model as params.json"), "{}", left.reason);
        }
        let [a, b] = [&import(dir.path()).unwrap(), &plain].map(|imported| {
            let source: &ArchWeights = imported.weights.as_ref().unwrap();
            let mut values = Vec::new();
            for index in 0..imported.params().len() {
                source
                    .param(index, &mut |piece| {
                        values.extend(piece.iter().map(|v| v.to_bits()));
                        Ok(())
                    })
                    .unwrap();
            }
            values
        });
        assert_eq!(a, b, "{name}");
    }
}

#[test]
fn a_configuration_above_that_disagrees_is_refused_and_a_short_one_is_listed() {
    let dir = release("lingua_llamacanon");
    let config = dir.path().join("config.json");
    let good = fs::read_to_string(&config).unwrap();
    for (from, to, wanted) in [
        ("\"rope_dim\": 4", "\"rope_dim\": null", "dims 4"),
        ("\"qk_norm\": true", "\"qk_norm\": false", "qk_norm true"),
        ("\"rms_norm_eps\": 1e-5", "\"rms_norm_eps\": 1e-6", "norm_eps 1e-5"),
    ] {
        assert!(good.contains(from), "{good}");
        fs::write(&config, good.replace(from, to)).unwrap();
        let error = import(dir.path()).unwrap_err().to_string();
        assert!(error.contains("config.json") && error.contains(wanted), "{error}");
    }
    fs::write(&config, "{\"model_type\": \"LlamaCanon\", \"auto_map\": {}}").unwrap();
    let imported = import(dir.path()).unwrap();
    assert!(imported.weights.is_some());
    let left = imported.left_out.iter().find(|left| left.name == "config.json").unwrap();
    assert!(left.reason.contains("does not describe a model"), "{}", left.reason);
    fs::write(&config, "{").unwrap();
    assert!(import(dir.path()).unwrap_err().to_string().contains("not JSON"));
}

#[test]
fn a_model_without_weights_says_where_they_were_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let config = golden("hf_llama").join("config.json");
    fs::write(dir.path().join("config.json"), fs::read(config).unwrap()).unwrap();
    let imported = import(dir.path()).unwrap();
    assert!(imported.weights.is_none());
    let names = ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"];
    let looked: Vec<PathBuf> = names
        .into_iter()
        .chain(["default/consolidated.pth"])
        .map(|name| dir.path().join(name))
        .collect();
    assert_eq!(imported.looked_for, looked);
    // A variant without weights, with and without a configuration above it.
    let params = golden("lingua_gdn2").join("default/params.json");
    let variant = tempfile::tempdir().unwrap();
    fs::create_dir(variant.path().join("default")).unwrap();
    fs::write(variant.path().join("default/params.json"), fs::read(params).unwrap()).unwrap();
    let imported = import(variant.path()).unwrap();
    assert_eq!(imported.looked_for, [variant.path().join("default/consolidated.pth")]);
    // Only other variants: the message names them.
    fs::rename(variant.path().join("default"), variant.path().join("bf16")).unwrap();
    let error = import(variant.path()).unwrap_err().to_string();
    assert!(error.contains("name a variant") && error.contains("bf16"), "{error}");
}

/// The folder of a golden model with its weights as `torch.save` wrote them.
fn torch_folder(sharded: bool) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let stock = golden("../stock/llama31");
    fs::write(dir.path().join("config.json"), fs::read(stock.join("config.json")).unwrap())
        .unwrap();
    let store = Store::single(&stock.join("model.safetensors")).unwrap();
    let planned: Vec<Planned> = store
        .tensors
        .iter()
        .map(|(name, stored)| Planned { name: name.clone(), shape: stored.shape.clone() })
        .collect();
    let save = |name: &str, planned: &[Planned]| {
        interop::pth::write(&dir.path().join(name), planned, Dtype::F32, |index, put| {
            let Planned { name, shape } = &planned[index];
            put(&store.values(name, 0, shape.iter().product::<i64>() as u64)?)
        })
        .unwrap();
    };
    if !sharded {
        save("pytorch_model.bin", &planned);
        return dir;
    }
    let (first, second) = planned.split_at(3);
    let names = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"];
    let mut map = serde_json::Map::new();
    for (name, planned) in names.into_iter().zip([first, second]) {
        save(name, planned);
        map.extend(planned.iter().map(|tensor| (tensor.name.clone(), name.into())));
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map}).to_string();
    fs::write(dir.path().join("pytorch_model.bin.index.json"), index).unwrap();
    dir
}

#[test]
fn weights_of_torch_save_are_those_of_safetensors() {
    let values = |folder: &Path| {
        let imported = import(folder).unwrap();
        let source = imported.weights.as_ref().expect("weights");
        let mut values = Vec::new();
        for index in 0..imported.params().len() {
            source
                .param(index, &mut |piece| {
                    values.extend(piece.iter().map(|value| value.to_bits()));
                    Ok(())
                })
                .unwrap();
        }
        values
    };
    let wanted = values(&golden("../stock/llama31"));
    for sharded in [false, true] {
        assert_eq!(values(torch_folder(sharded).path()), wanted, "{sharded}");
    }
}

#[test]
fn a_folder_named_like_a_word_of_the_language_is_imported() {
    let config = fs::read(golden("hf_llama").join("config.json")).unwrap();
    for word in ["empty", "arch", "import", "with", "of", "true", "decoder", "attention"] {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(word);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("config.json"), &config).unwrap();
        let request = Request { source: &folder, name: None, devices: None, weights: false };
        let imported = read(&request).unwrap_or_else(|error| panic!("{word}: {error}"));
        assert!(imported.name == format!("{word}_") || imported.name == word, "{}", imported.name);
        assert!(imported.text.contains(&format!("arch {} {{", imported.name)));
        let error = read(&Request { name: Some("empty"), ..request }).unwrap_err().to_string();
        assert!(error.contains("--name: `empty` cannot be") && error.contains("`--name empty_`"));
    }
}

#[test]
fn files_that_may_be_the_weights_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let config = golden("hf_llama").join("config.json");
    fs::write(dir.path().join("config.json"), fs::read(config).unwrap()).unwrap();
    for name in
        ["model-Q4.gguf", "model-00001-of-00002.safetensors", "notes.txt", "training_args.bin"]
    {
        fs::write(dir.path().join(name), "").unwrap();
    }
    let imported = import(dir.path()).unwrap();
    assert_eq!(imported.unread, ["model-00001-of-00002.safetensors", "model-Q4.gguf"]);
    let error = interop::source::file_of(dir.path()).unwrap_err().to_string();
    assert!(error.contains("it has model-00001-of-00002.safetensors, model-Q4.gguf"), "{error}");
}
