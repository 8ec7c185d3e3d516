//! `canonc data overlap`: held-out questions that occur in training, counted and checked by a second method.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::{canonc, folder, run_line};

const ARCH: &str = "\
arch small {
  vocab 300   dim 8   norm_eps 1e-5
  init lingua
  layers 2 of decoder {
    mixer attention { heads 2 }
    mlp   swiglu { hidden 16 }
  }
}
";

/// A recipe on that data.
fn recipe(data: &str) -> String {
    format!(
        "arch = \"../arch/small.canon\"\ndata = {{ {data}, ids = \"dense\" }}\n\
         batch = {{ sequences = 4, micro_batches = 2 }}\n\
         optimizer = {{ lr = 0.003, weight_decay = 0.1 }}\n\
         schedule = {{ kind = \"cosine\", warmup = 1 }}\nbudget = {{ steps = 2 }}\n\
         seeds = {{ init = 1, data = 7 }}\nevaluation = {{ windows = 300 }}\n"
    )
}

/// One operation modulo 2: twelve questions. A window is one sample.
const MANO: &str =
    "task = \"mano\", seq_len = 6, mano.L = 1, mano.value_mod = 2, mano.knowledge_augment = false";
const DEPO: &str = "task = \"depo\", seq_len = 64, depo.N = 6, depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2";
/// Few enough graphs of three vertices that 16 large windows contain all.
const BREVO: &str = "task = \"brevo\", seq_len = 1024, brevo.N = 3";

/// The experiments of a file, as `data overlap --json` lists them.
fn overlaps(dir: &Path, file: &str) -> Vec<Value> {
    let ran = canonc(dir, &["data", "overlap", file, "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stderr);
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(answer["schema"], "canonc.data.overlap.v1");
    answer["experiments"].as_array().unwrap().clone()
}

#[test]
fn every_question_is_looked_for_in_every_window() {
    let mano = recipe(MANO);
    let sweep = mano.replace("lr = 0.003, ", "") + "[sweep]\noptimizer.lr = [0.1, 0.2]\n";
    let seeds = mano.replace(", data = 7", "") + "[sweep]\nseeds.data = [7, 8]\n";
    let dir = folder(&[
        ("arch/small.canon", ARCH),
        ("recipes/mano.toml", &mano),
        ("recipes/sweep.toml", &sweep),
        ("recipes/seeds.toml", &seeds),
        ("recipes/depo.toml", &recipe(DEPO)),
        ("recipes/brevo.toml", &recipe(BREVO)),
    ]);
    let dir = dir.path();
    let json = |file: &str| overlaps(dir, file);
    let experiments = json("recipes/mano.toml");
    let mano = &experiments[0];
    // Sixteen windows; each is the sample of its number.
    let line = "data generate mano --set L=1 --set value_mod=2 --set knowledge_augment=false \
                --order indexed --seed 7 --count 16";
    let trained = run_line(dir, line).stdout;
    let trained: BTreeSet<&str> = trained.lines().collect();
    assert!((2..12).contains(&trained.len()), "{trained:?}");
    assert_eq!(mano["training"], serde_json::json!({"windows": 16, "questions": 16}));
    assert_eq!(mano["distinct"]["questions"], 12, "{mano}");
    assert_eq!(mano["distinct"]["shown"], trained.len() as u64, "{mano}");
    assert_eq!(mano["held_out"]["questions"], 300);
    let shown = mano["held_out"]["shown"].as_u64().unwrap();
    assert!(shown > trained.len() as u64 && shown < 300, "{mano}");
    // Windows of one seed are counted once for all points, those of two seeds twice.
    assert_eq!(json("recipes/sweep.toml").len(), 1);
    let both = json("recipes/seeds.toml");
    assert_eq!((both.len(), &both[0]["distinct"]), (2, &mano["distinct"]));
    // A lock gives the same result as its recipe.
    assert_eq!(canonc(dir, &["build", "recipes/mano.toml"]).code, 0);
    assert_eq!(json("lockfiles/mano.lock"), experiments);
    // With thousands of names, questions never repeat by chance; with graphs of three vertices they always do.
    let held_out = |file: &str| json(file)[0]["held_out"].clone();
    assert_eq!(held_out("recipes/depo.toml")["shown"], 0);
    assert_eq!(held_out("recipes/brevo.toml"), serde_json::json!({"questions": 64, "shown": 64}));
    // Losses are measured on the questions in windows; only Brevo's written answers are to others.
    for (file, others) in
        [("recipes/depo.toml", false), ("recipes/mano.toml", false), ("recipes/brevo.toml", true)]
    {
        let overlap = &json(file)[0];
        let in_windows = &overlap["in_windows"];
        assert_eq!(*in_windows != overlap["held_out"], others, "{overlap}");
        if others {
            assert!(in_windows["questions"].as_u64() > Some(300), "{overlap}");
            assert_eq!(in_windows["shown"], in_windows["questions"], "{overlap}");
            let text = canonc(dir, &["data", "overlap", file]).stdout;
            assert!(text.contains("for eval_loss and token_accuracy"), "{text}");
        }
    }
    let text = canonc(dir, &["data", "overlap", "recipes/mano.toml"]).stdout;
    insta::assert_snapshot!(text);
}

#[test]
fn data_without_questions_is_refused() {
    let lano = recipe("task = \"lano\", seq_len = 512, lano.config = \"cfg3b\"");
    let text =
        recipe("task = \"text\", seq_len = 64, source = \"c4\"").replace(", ids = \"dense\"", "");
    let dir = folder(&[
        ("arch/small.canon", ARCH),
        ("recipes/a.toml", &recipe(MANO)),
        ("recipes/lano.toml", &lano),
        ("recipes/text.toml", &text),
        (
            "recipes/pair.toml",
            "base = \"a\"\ntreatment = [\"optimizer.lr\"]\narms = { a = \"a.toml\", b = \"b.toml\" }\n\
             seeds = { init = [1, 2], data = [1, 2] }\n",
        ),
        ("recipes/b.toml", &recipe(MANO).replace("0.003", "0.004")),
    ]);
    let dir = dir.path();
    for (file, message) in [
        ("recipes/lano.toml", "lano has no questions to compare"),
        ("recipes/text.toml", "documents have no questions to compare"),
        ("recipes/pair.toml", "`recipes/pair.toml` is a comparison"),
        ("arch/small.canon", "`arch/small.canon` trains nothing"),
        ("recipes/c.toml", "`recipes/c.toml` does not exist"),
    ] {
        let ran = canonc(dir, &["data", "overlap", file]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{file}: {}", ran.stderr);
        assert!(ran.stderr.contains(message) && ran.stderr.contains("help: "), "{}", ran.stderr);
    }
}
