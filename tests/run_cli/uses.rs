//! `canonc forward`, `canonc generate` and `canonc bench step` as processes: files reproduce the reference model's
//! numbers, equal requests give equal text, refusals have their exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use runtime::weights::file;

/// A folder with an arch, its weights under Hugging Face's names, tokens and targets, all from the golden case.
struct GoldenModel {
    root: tempfile::TempDir,
}

const ARCH: &str = "
arch base {
  vocab 97   dim 32   norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer attention { heads 4 }
    mlp swiglu { hidden 64 }
  }
}
arch golden = base with { canon A, B, C, D }
";

impl GoldenModel {
    fn new() -> GoldenModel {
        let root = tempfile::tempdir().unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/golden/models/llamacanon_ABCD.safetensors");
        let tensors = file::read(&golden).unwrap();
        let weights: Vec<_> =
            tensors.iter().filter_map(|(name, t)| Some((name.strip_prefix("w/")?, t))).collect();
        file::write(&root.path().join("w.safetensors"), &weights, None).unwrap();
        let ids = [("tokens", &tensors["in/tokens"]), ("next", &tensors["in/targets"])];
        file::write(&root.path().join("t.safetensors"), &ids, None).unwrap();
        file::write(
            &root.path().join("gold.safetensors"),
            &[("logits", &tensors["out/logits"])],
            None,
        )
        .unwrap();
        fs::write(root.path().join("a.canon"), ARCH).unwrap();
        GoldenModel { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn type_in(&self, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_canonc"));
        command.current_dir(self.root.path()).args(words.split_whitespace());
        for name in ["OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(name, "1");
        }
        command.output().unwrap()
    }

    /// Standard output of a command that succeeds.
    fn works(&self, words: &str) -> String {
        let output = self.type_in(words);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{words}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Standard error of a command that fails with that exit code.
    fn refused(&self, code: i32, words: &str) -> String {
        let output = self.type_in(words);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words}: {stderr}");
        stderr
    }

    /// A float tensor from a file, flattened.
    fn floats(&self, name: &str, tensor: &str) -> Vec<f64> {
        let tensors = file::read(&self.path(name)).unwrap();
        Vec::try_from(tensors[tensor].reshape([-1])).unwrap()
    }
}

#[test]
fn forward_gives_the_reference_models_numbers() {
    let folder = GoldenModel::new();
    let command = "forward a.canon --arch golden --weights w.safetensors --tokens t.safetensors";
    let printed =
        folder.works(&format!("{command} --targets next --grad --dtype f64 --out o.safetensors"));
    let loss = folder.floats("o.safetensors", "loss")[0];
    assert!(printed.starts_with(&format!("loss {loss} over ")), "{printed}");
    let (logits, expected) =
        (folder.floats("o.safetensors", "logits"), folder.floats("gold.safetensors", "logits"));
    assert_eq!(logits.len(), expected.len());
    assert!(logits.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6));
    assert_eq!(folder.floats("o.safetensors", "grad.layers.1.mlp.D").len(), 128 * 4);

    let json =
        folder.works(&format!("{command} --kernels reference --json --out plain.safetensors"));
    assert!(
        json.contains("\"schema\": \"canonc.forward.v1\"") && json.contains("\"loss\": null"),
        "{json}"
    );
    assert!(json.contains("reference (asked for)") && !json.contains("fused"), "{json}");
}

#[test]
fn equal_requests_give_equal_text() {
    let folder = GoldenModel::new();
    let command = "generate a.canon --arch golden --weights w.safetensors --prompt-tokens 1,2,3 --max-tokens 12";
    let text = folder.works(&format!("{command} --seed 4"));
    assert_eq!(text.split_whitespace().count(), 12);
    assert_eq!(folder.works(&format!("{command} --seed 4")), text);
    assert_ne!(folder.works(&format!("{command} --seed 5")), text);
    let json = folder.works(&format!("{command} --seed 4 --json"));
    assert!(json.contains("\"text\": null") && json.contains("\"state_bytes\": "), "{json}");
}

#[test]
fn bench_times_a_step_by_kernel() {
    let folder = GoldenModel::new();
    let table = folder.works("bench step a.canon --arch golden --batch 1 --seq-len 8 --rounds 1");
    for word in ["forward and backward", "  causal_conv_grad", "  attention_grad", "update"] {
        assert!(table.contains(word), "{word} in:\n{table}");
    }
}

#[test]
fn refusals_say_what_to_type() {
    let folder = GoldenModel::new();
    let options = "--arch golden --tokens t.safetensors --out o.safetensors";
    let forward = |rest: &str| format!("forward a.canon {options} {rest}");
    for (code, words, part) in [
        (2, forward("--weights none.safetensors"), "`none.safetensors` does not exist"),
        (2, forward("--weights t.safetensors"), "t.safetensors does not contain this arch's weights"),
        (2, forward("--weights t.safetensors"), "`t.safetensors` was given as weights for the arch `golden`"),
        (2, forward("--weights w.safetensors --targets other"), "has no tensor `other`"),
        (2, forward("--weights w.safetensors --targets none/other"), "`none/other` does not exist"),
        (2, forward("--weights w.safetensors --grad"), "--targets"),
        (2, forward("--weights w.safetensors --dtype f16"), "f16"),
        (2, "forward a.canon --weights w.safetensors --tokens t.safetensors --out o.safetensors".to_owned(), "--arch base"),
        (2, "forward a.canon --arch golden --weights w.safetensors --tokens t.safetensors --out no/o.safetensors".to_owned(), "the folder `no` does not exist"),
        (2, "generate a.canon --arch golden --weights w.safetensors".to_owned(), "--prompt TEXT"),
        (2, "generate a.canon --arch golden --weights w.safetensors --prompt A".to_owned(), "name its tokenizer.json with --tokenizer-file"),
        (2, "generate a.canon --arch golden --weights w.safetensors --prompt-tokens 97".to_owned(), "use ids of 0..97"),
        (2, "generate a.canon --arch golden --weights w.safetensors --prompt-tokens 1 --temperature=-1".to_owned(), "temperature is -1"),
        (2, "generate a.canon --arch golden --weights w.safetensors --prompt-tokens 1 --temperature -0.5".to_owned(), "temperature is -0.5; give a number that is at least 0"),
        (2, "generate a.canon --arch golden --weights w.safetensors --prompt-tokens -1".to_owned(), "use ids of 0..97"),
        (2, "bench step".to_owned(), "FILE"),
    ] {
        let stderr = folder.refused(code, &words);
        assert!(stderr.contains(part), "{words}: {stderr}");
    }
    assert!(!folder.path("o.safetensors").exists());
}
