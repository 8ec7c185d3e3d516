//! `canonc import` and `canonc export` as processes: the reference's checkpoints give the reference's logits, finished
//! runs are exported to other programs, refusals have their exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use compiler::program::{Program, Std};
use runtime::weights::{Weights, file};

use crate::{DEPO, experiment};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/checkpoints")
}

pub(super) fn type_in(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_canonc"));
    command.current_dir(folder).args(words);
    for name in ["OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
        command.env(name, "1");
    }
    command.output().unwrap()
}

/// Standard output of a command that succeeds.
pub(super) fn works(folder: &Path, words: &[&str]) -> String {
    let output = type_in(folder, words);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(folder: &Path, code: i32, words: &[&str]) -> String {
    let output = type_in(folder, words);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
    stderr
}

fn floats(path: &Path, tensor: &str) -> Vec<f64> {
    let tensors = file::read(path).unwrap();
    Vec::try_from(tensors[tensor].reshape([-1])).unwrap()
}

/// Logits of an imported folder on a golden case's tokens.
fn logits(root: &Path, folder: &str, name: &str) -> Vec<f64> {
    let case = golden().join(name).join("golden.safetensors");
    let tokens = root.join("t.safetensors");
    file::write(&tokens, &[("tokens", &file::read(&case).unwrap()["in/tokens"])], None).unwrap();
    let arch = format!("{folder}/arch/model.canon");
    let weights = format!("{folder}/weights.safetensors");
    let out = format!("{folder}-logits.safetensors");
    let words =
        ["forward", &arch, "--weights", &weights, "--tokens", "t.safetensors", "--out", &out];
    works(root, &words);
    floats(&root.join(out), "logits")
}

fn furthest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn every_golden_checkpoint_imports_to_its_logits_and_survives_export_and_import() {
    let index = fs::read_to_string(golden().join("index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    let cases = index["checkpoints"].as_array().unwrap();
    assert_eq!(cases.len(), 10);
    for case in cases {
        let name = case["dir"].as_str().unwrap();
        let tolerance = case["logits_atol"].as_f64().unwrap();
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        let source = golden().join(name).to_string_lossy().into_owned();
        let listed = works(root, &["import", &source, "--out", "in", "--name", "model"]);
        assert!(listed.starts_with("in/arch/model.canon\n"), "{listed}");
        let expected = floats(&golden().join(name).join("golden.safetensors"), "out/logits");
        let actual = logits(root, "in", name);
        let difference = furthest(&actual, &expected);
        assert!(difference <= tolerance, "{name}: {difference:e}, and {tolerance:e} is allowed");
        for to in ["release", "lingua"] {
            if name == "hf_llama_tied" && to == "lingua" {
                let words =
                    ["export", "in/arch/model.canon", "--weights", "in/weights.safetensors"];
                let to = ["--to", to, "--out", "no"];
                let stderr = refused(root, 2, &[words.as_slice(), &to].concat());
                assert!(stderr.contains("`head` is tied") && !root.join("no").exists(), "{stderr}");
                continue;
            }
            let weights = "in/weights.safetensors";
            let out = format!("{to}-out");
            works(
                root,
                &["export", "in/arch/model.canon", "--weights", weights, "--to", to, "--out", &out],
            );
            let back = format!("{to}-back");
            works(root, &["import", &out, "--out", &back, "--name", "model"]);
            let bytes =
                |folder: &str| fs::read(root.join(folder).join("weights.safetensors")).unwrap();
            assert!(bytes("in") == bytes(&back), "{name} by way of {to}");
            let arch = |folder: &str| {
                fs::read_to_string(root.join(folder).join("arch/model.canon")).unwrap()
            };
            let [a, b] =
                [arch("in"), arch(&back)].map(|text| text.split_once('\n').unwrap().1.to_owned());
            assert_eq!(a, b, "{name} by way of {to}");
        }
    }
}

/// Checks what the model card and the command say of the weights exported from the run `small`.
fn check_cards(root: &Path) {
    // Rounded weights differ from the attested ones, an earlier step's weights saw only part of the training, and other
    // files do not name a step.
    let step_four = "runs/small/checkpoints/step-0000000004/weights.safetensors";
    let no_step = root.join("plain.safetensors");
    works(root, &["import", "hf", "--out", "plain", "--name", "plain"]);
    fs::copy(root.join("plain/weights.safetensors"), &no_step).unwrap();
    let lock = "lockfiles/small.lock";
    let unknown = "Nothing shows that these weights were trained by this lock";
    for (number, (words, origin, training)) in [
        (
            &["runs/small", "--dtype", "bf16"][..],
            "rounded to bf16 from the f32 weights of step-0000000006, attested by the run",
            "576: 6 steps of 96",
        ),
        (
            &[lock, "--weights", step_four],
            "of step 4 of 6 of lock ",
            "384 of 576: 4 of 6 steps of 96",
        ),
        (
            &[lock, "--weights", step_four, "--dtype", "bf16"],
            "rounded to bf16 from weights of step 4 of 6 of lock ",
            "4 of 6 steps",
        ),
        (&[lock, "--weights", "plain.safetensors"], "| weights | of unknown origin |", unknown),
    ]
    .into_iter()
    .enumerate()
    {
        let out = format!("card{number}");
        let words = [&["export"], words, &["--to", "hf", "--out", &out]].concat();
        let output = type_in(root, &words);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        let card = fs::read_to_string(root.join(&out).join("README.md")).unwrap();
        assert!(card.contains(origin) && card.contains(training), "{words:?}: {card}");
        assert_eq!(card.contains(unknown), training == unknown, "{card}");
        let summary = origin.trim_matches(['|', ' ']).trim_start_matches("weights | ");
        assert!(stderr.contains(&format!("weights: {summary}")), "{stderr}");
        assert_eq!(card.contains("not attested"), words.contains(&step_four), "{card}");
    }
}

/// The folder `hf` comes back with the trained weights.
fn check_import_of_export(root: &Path, trained: &Path) {
    works(root, &["import", "hf", "--out", "back", "--name", "small"]);
    assert!(fs::read_dir(root.join("runs/small/checkpoints")).unwrap().count() > 0);
    let (a, b) =
        (file::read(trained).unwrap(), file::read(&root.join("back/weights.safetensors")).unwrap());
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, tensor) in &a {
        assert_eq!(*tensor, b[name], "{name}");
    }
}

/// Neither moments nor damaged weights are exported.
fn check_refused_weights(root: &Path, trained: &Path) {
    // The optimiser's moments have the names and shapes of weights; damaged weights have those too.
    let step = "runs/small/checkpoints/step-0000000006";
    let export = |weights: &str| {
        let words = ["export", "lockfiles/small.lock", "--to", "hf", "--out", "no", "--weights"];
        [words.as_slice(), &[weights]].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let words = export(&format!("{step}/first_moment.safetensors"));
    let stderr = refused(root, 2, &words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(stderr.contains("holds the optimiser's moments"), "{stderr}");
    let good = fs::read(trained).unwrap();
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(trained, damaged).unwrap();
    for weights in [step.to_owned(), format!("{step}/weights.safetensors")] {
        let words = export(&weights);
        let stderr = refused(root, 1, &words.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(stderr.contains("is not what its checkpoint says it is"), "{stderr}");
    }
    fs::write(trained, good).unwrap();
}

#[test]
fn a_finished_run_is_exported_and_an_unfinished_one_is_not() {
    let workspace = crate::Place::new(&experiment("small", DEPO, &[]));
    let root = workspace.root.path();
    workspace.exits(0, "run --lock lockfiles/small.lock");
    let listed = works(root, &["export", "runs/small", "--to", "hf", "--out", "hf"]);
    assert_eq!(
        listed,
        "hf/config.json\nhf/generation_config.json\nhf/model.safetensors\nhf/README.md\n"
    );
    let config = fs::read_to_string(root.join("hf/config.json")).unwrap();
    assert!(config.contains("\"LlamaForCausalLM\"") && !config.contains("auto_map"), "{config}");
    let card = fs::read_to_string(root.join("hf/README.md")).unwrap();
    assert!(card.contains("attested by the run") && card.contains("step-0000000006"), "{card}");
    check_cards(root);
    let trained = root.join("runs/small/checkpoints/step-0000000006/weights.safetensors");
    check_import_of_export(root, &trained);
    check_refused_weights(root, &trained);
    // One logged step was changed: the run is checked against its attestation first.
    let metrics = root.join("runs/small/metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, text.lines().take(3).map(|l| format!("{l}\n")).collect::<String>())
        .unwrap();
    let stderr = String::from_utf8(
        type_in(root, &["export", "runs/small", "--to", "hf", "--out", "no"]).stderr,
    )
    .unwrap();
    assert!(stderr.contains("runs/small"), "{stderr}");
    assert!(!root.join("no").exists());
    // Lingua trains on text: its recipe is refused with the field's name, its checkpoint is not refused.
    let stderr = refused(
        root,
        2,
        &["export", "lockfiles/small.lock", "--to", "lingua-slurm", "--out", "no"],
    );
    assert!(
        stderr.contains("`data.task` is \"depo\"") && stderr.contains("Lingua trains on text"),
        "{stderr}"
    );
}

#[test]
fn impossible_imports_and_exports_name_their_file_and_leave_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    let hf = golden().join("hf_llama").to_string_lossy().into_owned();
    fs::create_dir(root.join("full")).unwrap();
    fs::write(root.join("full/x"), "x").unwrap();
    let stderr = refused(root, 2, &["import", &hf, "--out", "full"]);
    assert!(stderr.contains("it already exists"), "{stderr}");
    let stderr = refused(root, 2, &["import", "nowhere", "--out", "o"]);
    assert!(stderr.contains("it does not exist"), "{stderr}");
    let stderr = refused(root, 2, &["import", "full", "--out", "o"]);
    assert!(stderr.contains("no config.json and no params.json"), "{stderr}");
    let stderr = refused(root, 2, &["import", &hf, "--devices", "8", "--out", "o"]);
    assert!(stderr.contains("has no training settings"), "{stderr}");
    fs::write(root.join("r.yaml"), "model: &m\n  dim: 64\n").unwrap();
    let stderr = refused(root, 2, &["import", "r.yaml", "--out", "o"]);
    assert!(stderr.contains("an anchor") && stderr.contains("r.yaml:1"), "{stderr}");
    // A budget that contradicts the recipe's keys.
    let text = "model:\n  dim: 64\n  n_heads: 4\nsteps: 10\noptim:\n  warmup: 20\n";
    fs::write(root.join("r.yaml"), text).unwrap();
    let stderr = refused(root, 2, &["import", "r.yaml", "--devices", "2", "--out", "o"]);
    assert!(stderr.contains("warmup takes 20 steps, but the run has 10"), "{stderr}");
    // An arch that no other program has.
    fs::write(
        root.join("a.canon"),
        "arch a { vocab 16 dim 16 norm_eps 1e-5 init lingua layers 1 of decoder { mixer attention { heads 2, window 4 } mlp swiglu { hidden 32 } } }",
    )
    .unwrap();
    let stderr = refused(root, 2, &["export", "a.canon", "--to", "release", "--out", "o"]);
    assert!(
        stderr.contains("not in one of the released families") && stderr.contains("window"),
        "{stderr}"
    );
    assert!(!root.join("o").exists());
    let left = fs::read_dir(root).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert!(!left.into_iter().any(|name| name.contains("partial")));
}

/// A plain model, as in stock `transformers`; one with Canon layers; one with other RoPE settings.
const LLAMAS: &str = "
arch plain {
  vocab 97   dim 32   norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer attention { heads 4, kv_heads 2, rope { layout interleaved } }
    mlp swiglu { hidden 64 }
  }
}
arch halved = plain with { mixer.rope.layout half }
arch canon = plain with { canon A, B, C, D   mixer.qk_norm true   mixer.rope.dims 4 }
arch canon_halved = canon with { mixer.rope.layout half }
arch other = plain with { mixer.rope.theta 500000 }
";

/// A folder with the archs, the weights of each under our paths, and tokens.
fn llamas() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("a.canon"), LLAMAS).unwrap();
    let program = Program::new([("a.canon".to_owned(), LLAMAS.to_owned())], Std::Embedded);
    for name in program.archs("a.canon") {
        let compiled = program.compile("a.canon", &name).0.unwrap();
        let weights = Weights::init(&compiled.graph, 7).unwrap();
        weights.save(&temp.path().join(format!("{name}.safetensors"))).unwrap();
    }
    let tokens = (0..2 * 19).map(|n: i64| (n * n * 31 + n * 7 + 5) % 97);
    let header = r#"{"tokens":{"dtype":"I64","shape":[2,19],"data_offsets":[0,304]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(tokens.flat_map(i64::to_le_bytes));
    fs::write(temp.path().join("t.safetensors"), bytes).unwrap();
    temp
}

#[test]
fn exported_weights_give_the_same_logits_and_text_as_ours() {
    let temp = llamas();
    let root = temp.path();
    let forward = |arch: &str, weights: &str| {
        let words = ["forward", "a.canon", "--arch", arch, "--tokens", "t.safetensors"];
        let given = ["--weights", weights, "--out", "o.safetensors"];
        works(root, &[words.as_slice(), &given].concat());
        floats(&root.join("o.safetensors"), "logits")
    };
    for arch in ["plain", "halved", "canon", "canon_halved"] {
        let ours = format!("{arch}.safetensors");
        let logits = forward(arch, &ours);
        for to in ["hf", "lingua"] {
            let out = format!("{arch}-{to}");
            let words = ["export", "a.canon", "--arch", arch, "--weights", &ours];
            works(root, &[words.as_slice(), &["--to", to, "--out", &out]].concat());
            let file = if to == "hf" { "model.safetensors" } else { "default/consolidated.pth" };
            for weights in [format!("{out}/{file}"), out.clone()] {
                assert_eq!(forward(arch, &weights), logits, "{arch} of {weights}");
            }
            // Weights under foreign names are exported like ours.
            let again = format!("{out}-again");
            let words = ["export", "a.canon", "--arch", arch, "--weights", &out];
            works(root, &[words.as_slice(), &["--to", to, "--out", &again]].concat());
            let bytes = |folder: &str| fs::read(root.join(folder).join(file)).unwrap();
            assert!(bytes(&out) == bytes(&again), "{out}");
        }
        // Generation reads them in the same way.
        let text = |weights: &str| {
            let words = ["generate", "a.canon", "--arch", arch, "--prompt-tokens", "1,2,3"];
            let given = ["--weights", weights, "--seed", "3", "--max-tokens", "9"];
            works(root, &[words.as_slice(), &given].concat())
        };
        assert_eq!(text(&ours), text(&format!("{arch}-hf")));
        assert_eq!(text(&ours), text(&format!("{arch}-lingua/default/consolidated.pth")));
    }
    // The reordering of rows is reported; a file without configuration counts as stock `transformers`.
    fs::copy(root.join("plain-hf/model.safetensors"), root.join("alone.safetensors")).unwrap();
    let words = ["forward", "a.canon", "--arch", "plain", "--tokens", "t.safetensors"];
    let given = ["--weights", "alone.safetensors", "--out", "o.safetensors"];
    let output = type_in(root, &[words.as_slice(), &given].concat());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("rows of q and k are reordered"), "{stderr}");
    assert_eq!(forward("plain", "alone.safetensors"), forward("plain", "plain.safetensors"));
    // A configuration in the same folder must describe the same model, or the weights are refused.
    let given = ["--weights", "plain-hf", "--out", "no.safetensors"];
    let words = ["forward", "a.canon", "--arch", "other", "--tokens", "t.safetensors"];
    let stderr = refused(root, 2, &[words.as_slice(), &given].concat());
    assert!(stderr.contains("config.json") && stderr.contains("theta 5e5"), "{stderr}");
    assert!(!root.join("no.safetensors").exists());
    fs::create_dir(root.join("empty")).unwrap();
    let given = ["--weights", "empty", "--out", "no.safetensors"];
    let stderr = refused(root, 2, &[words.as_slice(), &given].concat());
    assert!(stderr.contains("this folder contains no weights"), "{stderr}");
}

#[test]
fn shards_are_taken_by_their_index() {
    let temp = llamas();
    let root = temp.path();
    let words = ["export", "a.canon", "--arch", "plain", "--weights", "plain.safetensors"];
    works(root, &[words.as_slice(), &["--to", "hf", "--out", "hf"]].concat());
    let tensors = file::read(&root.join("hf/model.safetensors")).unwrap();
    let mut map = serde_json::Map::new();
    for shard in 0..2 {
        let name = format!("model-{shard}.safetensors");
        let part: Vec<_> =
            tensors.iter().skip(shard).step_by(2).map(|(name, t)| (name.as_str(), t)).collect();
        map.extend(part.iter().map(|(tensor, _)| ((*tensor).to_owned(), name.clone().into())));
        file::write(&root.join("hf").join(name), &part, None).unwrap();
    }
    fs::remove_file(root.join("hf/model.safetensors")).unwrap();
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    fs::write(root.join("hf/model.safetensors.index.json"), index.to_string()).unwrap();
    let forward = |weights: &str| {
        let words = ["forward", "a.canon", "--arch", "plain", "--tokens", "t.safetensors"];
        works(
            root,
            &[words.as_slice(), &["--weights", weights, "--out", "o.safetensors"]].concat(),
        );
        floats(&root.join("o.safetensors"), "logits")
    };
    let expected = forward("plain.safetensors");
    assert_eq!(forward("hf/model.safetensors.index.json"), expected);
    assert_eq!(forward("hf"), expected);
}

#[test]
fn an_import_without_weights_needs_its_option() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    let config = golden().join("hf_llama/config.json");
    fs::create_dir(root.join("model")).unwrap();
    fs::write(root.join("model/config.json"), fs::read(config).unwrap()).unwrap();
    let stderr = refused(root, 2, &["import", "model", "--out", "o"]);
    assert!(stderr.contains("there is no `model/model.safetensors`"), "{stderr}");
    fs::write(root.join("model/weights.gguf"), "").unwrap();
    let stderr = refused(root, 2, &["import", "model", "--out", "o"]);
    assert!(stderr.contains("not read: weights.gguf"), "{stderr}");
    fs::write(root.join("model/pytorch_model.bin"), "<html>404</html>").unwrap();
    let stderr = refused(root, 2, &["import", "model", "--out", "o"]);
    let parts = ["it contains no weights", "a page of HTML", "model/pytorch_model.bin"];
    assert!(parts.iter().all(|part| stderr.contains(part)), "{stderr}");
    fs::remove_file(root.join("model/pytorch_model.bin")).unwrap();
    let stderr = refused(root, 2, &["import", "model", "--out", "o"]);
    assert!(stderr.contains("--no-weights") && !root.join("o").exists(), "{stderr}");
    let listed = works(root, &["import", "model", "--out", "o", "--no-weights"]);
    assert_eq!(listed, "o/arch/model.canon\n");
    // As in the release: a configuration, and in a subfolder the variant that its loader takes.
    let release = root.join("release");
    fs::create_dir_all(release.join("default")).unwrap();
    for name in ["params.json", "consolidated.pth"] {
        let from = golden().join("lingua_llamacanon/default").join(name);
        fs::copy(from, release.join("default").join(name)).unwrap();
    }
    fs::write(release.join("config.json"), "{\"model_type\": \"LlamaCanon\"}").unwrap();
    let listed = works(root, &["import", "release", "--out", "r"]);
    assert!(listed.ends_with("r/weights.safetensors\n"), "{listed}");
    let json = works(root, &["import", "release", "--out", "n", "--no-weights", "--json"]);
    assert!(json.contains("\"weights\": null"), "{json}");
    assert!(!root.join("n/weights.safetensors").exists());
}

/// Imports the release's own configurations; the library's test compares all 48 with the committed archs.
#[test]
fn a_released_configuration_is_imported_by_its_file_and_lists_what_is_left_out() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes/published/data/hf_configs.json");
    let text = fs::read_to_string(path).unwrap().replace("Infinity", "\"Infinity\"");
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (name, key) in [
        ("GLA5Canon-1B-Nemo-1T-lr0.002_model_HF.json", "use_l2warp"),
        ("Mamba2conv-1B-Nemo-1T-lr0.002_model_HF.json", "noconv1d"),
    ] {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        let config = serde_json::to_string(&all[name]).unwrap().replace("\"Infinity\"", "Infinity");
        fs::write(root.join("config.json"), config).unwrap();
        let words = ["import", "config.json", "--name", "m", "--out", "o", "--no-weights"];
        let output = type_in(root, &words);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(stderr.contains(&format!("left out: {key} (false")), "{stderr}");
        let listed = fs::read_to_string(root.join("o/import.toml")).unwrap();
        assert!(listed.contains(&format!("name = \"{key}\"")), "{listed}");
    }
}

#[test]
fn a_folder_of_another_program_is_a_model_for_every_command() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    let case = "hf_llama";
    let source = golden().join(case);
    let tokens =
        file::read(&source.join("golden.safetensors")).unwrap().remove("in/tokens").unwrap();
    file::write(&root.join("t.safetensors"), &[("tokens", &tokens)], None).unwrap();
    let source = source.to_string_lossy().into_owned();
    works(root, &["export", &source, "--to", "hf", "--out", "again"]);
    let expected = floats(&golden().join(case).join("golden.safetensors"), "out/logits");
    for (n, folder) in [source.as_str(), "again"].into_iter().enumerate() {
        works(root, &["check", folder]);
        works(root, &["show", folder]);
        works(root, &["graph", folder]);
        works(root, &["export", folder, "--to", "torch", "--out", &format!("torch{n}")]);
        let out = format!("{n}.safetensors");
        works(root, &["forward", folder, "--tokens", "t.safetensors", "--out", &out]);
        assert!(furthest(&floats(&root.join(out), "logits"), &expected) < 1e-4, "{folder}");
        let generate = ["generate", folder, "--prompt-tokens", "1,2", "--max-tokens", "3"];
        assert_eq!(works(root, &generate).split_whitespace().count(), 3, "{folder}");
        fs::write(root.join("q.jsonl"), "{\"text\": \"a\", \"answer\": \"b\"}\n").unwrap();
        let stderr = refused(root, 2, &["answer", folder, "--questions", "q.jsonl"]);
        assert!(
            stderr.contains("has no tokenizer.json; name one with --tokenizer-file"),
            "{stderr}"
        );
    }
    let stderr = refused(
        root,
        2,
        &["forward", &source, "--arch", "b", "--tokens", "t.safetensors", "--out", "x"],
    );
    assert!(stderr.contains("`--arch b` is given, but"), "{stderr}");
    // A configuration alone is an arch without weights.
    fs::create_dir(root.join("config")).unwrap();
    fs::copy(Path::new(&source).join("config.json"), root.join("config/config.json")).unwrap();
    assert!(
        works(root, &["export", "config", "--to", "torch", "--out", "bare"]).contains("model.py")
    );
    let stderr = refused(root, 2, &["export", "config", "--to", "hf", "--out", "bare2"]);
    assert!(stderr.contains("a Hugging Face folder needs weights"), "{stderr}");
}

/// `canonc check` of locks, runs and folders.
#[test]
fn a_check_judges_whatever_names_a_model() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    let check = |word: &str| {
        let output = type_in(root, &["check", word]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let good = "arch a { vocab 16   dim 8   norm_eps 1e-5   init lingua
        layers 2 of decoder { mixer attention { heads 2 }  mlp swiglu { hidden 16 } } }";
    fs::write(root.join("a.canon"), good).unwrap();
    works(root, &["build", "a.canon"]);
    fs::create_dir_all(root.join("runs/mine")).unwrap();
    fs::copy(root.join("lockfiles/a.lock"), root.join("runs/mine/lock")).unwrap();
    for word in ["a.canon", "a.canon#a", "lockfiles/a.lock", "runs/mine", "mine"] {
        let (code, stderr) = check(word);
        assert!(
            code == Some(0) && stderr.contains("1 file, 1 arch: no errors"),
            "{word}: {stderr}"
        );
    }
    // Beside another program's configuration, archs are judged as anywhere.
    fs::create_dir(root.join("both")).unwrap();
    fs::write(root.join("both/config.json"), "{\"port\": 1}").unwrap();
    fs::write(root.join("both/a.canon"), good).unwrap();
    let (code, stderr) = check("both");
    assert!(code == Some(0) && stderr.contains("1 file, 1 arch: no errors"), "{stderr}");
    fs::copy(golden().join("hf_llama/config.json"), root.join("both/config.json")).unwrap();
    let (code, stderr) = check("both");
    assert!(code == Some(0) && stderr.contains("2 files, 2 archs: no errors"), "{stderr}");
    fs::write(root.join("both/a.canon"), good.replace("dim 8", "dim 7")).unwrap();
    assert_eq!(check("both").0, Some(2));
}
