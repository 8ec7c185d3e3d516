//! `canonc verify` as a process: its classes, its last line, its exit codes; and the commands that refuse bad runs.

use std::fs;

use super::super::{DEPO, Place, experiment, has, said};

#[test]
fn verify_names_what_is_broken() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(0, "run");
    let json = |code| -> serde_json::Value {
        let output = workspace.type_in("verify runs/small --json");
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let intact = json(0);
    assert_eq!(intact["schema"], "canonc.verify.v2");
    assert_eq!(intact["broken"].as_array().unwrap().len(), 0);
    for class in ["recomputed", "checked", "trusted"] {
        let claims = intact[class].as_array().unwrap();
        assert!(
            claims.iter().all(|claim| claim["subject"].is_string() && claim["text"].is_string())
        );
        assert!(!claims.is_empty(), "{class}");
    }
    // The last lines on standard output give the same result in words.
    let output = workspace.type_in("verify runs/small");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text.lines().rev().take(2).collect::<Vec<_>>(),
        ["no fault found", intact["closing"].as_str().unwrap()]
    );
    assert!(
        text.contains("taken on trust: ") && text.contains("losses and gradient norms"),
        "{text}"
    );
    let weights = workspace.path("runs/small/checkpoints/step-0000000006/weights.safetensors");
    let mut content = fs::read(&weights).unwrap();
    *content.last_mut().unwrap() ^= 1;
    fs::write(&weights, content).unwrap();
    let broken = json(1)["broken"].to_string();
    assert!(broken.contains("step-0000000006: weights.safetensors has digest"), "{broken}");
    let output = workspace.exits(1, "verify runs/small");
    assert!(output.contains("BROKEN") && output.contains("1 finding"), "{output}");
    // Commands that use the weights refuse them as well.
    if has("generate") {
        let generate = "generate lockfiles/small.lock --prompt-tokens 1 --max-tokens 1 --weights";
        let file = "runs/small/checkpoints/step-0000000006/weights.safetensors";
        let output = workspace.exits(1, &format!("{generate} {file}"));
        assert!(output.contains("is not what its checkpoint says it is"), "{output}");
    }
    assert!(workspace.exits(1, "run").contains("weights.safetensors has digest"));
    assert!(workspace.exits(2, "verify nowhere").contains("nowhere"));
}

#[test]
fn verify_exits_1_for_what_is_missing_swapped_or_added() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(0, "run");
    let checkpoints = "runs/small/checkpoints";
    let step = |step: u64| workspace.path(&format!("{checkpoints}/step-{step:010}"));
    let swap = || {
        let away = workspace.path("away");
        fs::rename(step(4), &away).unwrap();
        fs::rename(step(6), step(4)).unwrap();
        fs::rename(away, step(6)).unwrap();
    };
    swap();
    let output = workspace.exits(1, "verify small");
    assert!(output.contains("step-0000000004: it is the state after step 6"), "{output}");
    swap();
    workspace.exits(0, "verify small");
    let latest = workspace.path(&format!("{checkpoints}/latest"));
    fs::write(&latest, "").unwrap();
    assert!(workspace.exits(1, "verify small").contains("should name a checkpoint"));
    fs::write(&latest, "step-0000000006\n").unwrap();
    let kernels = workspace.path("runs/small/kernels.txt");
    let text = fs::read_to_string(&kernels).unwrap();
    fs::write(&kernels, format!("{text}# more\n")).unwrap();
    assert!(workspace.exits(1, "verify small").contains("kernels.txt: line"));
    fs::write(&kernels, text).unwrap();
    fs::remove_dir_all(step(6)).unwrap();
    let output = workspace.exits(1, "verify small");
    assert!(output.contains("the last step, 6, has no checkpoint"), "{output}");
}
