//! `canonc verify` as a process: its classes, its last line, its exit codes; and the commands that refuse bad runs.

use std::fs;

use super::super::{DEPO, Place, experiment, said};

#[test]
fn verify_names_what_is_broken() {
    let place = Place::new(&experiment("small", DEPO, &[]));
    place.exits(0, "run");
    let json = |code| -> serde_json::Value {
        let output = place.type_in("verify runs/small --json");
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let whole = json(0);
    assert_eq!(whole["schema"], "canonc.verify.v2");
    assert_eq!(whole["broken"].as_array().unwrap().len(), 0);
    for class in ["recomputed", "checked", "trusted"] {
        let claims = whole[class].as_array().unwrap();
        assert!(
            claims.iter().all(|claim| claim["subject"].is_string() && claim["text"].is_string())
        );
        assert!(!claims.is_empty(), "{class}");
    }
    // The last lines on standard output give the same result in words.
    let output = place.type_in("verify runs/small");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text.lines().rev().take(2).collect::<Vec<_>>(),
        ["no fault found", whole["closing"].as_str().unwrap()]
    );
    assert!(
        text.contains("taken on trust: ") && text.contains("losses and gradient norms"),
        "{text}"
    );
    let weights = place.path("runs/small/checkpoints/step-0000000006/weights.safetensors");
    let mut content = fs::read(&weights).unwrap();
    *content.last_mut().unwrap() ^= 1;
    fs::write(&weights, content).unwrap();
    let broken = json(1)["broken"].to_string();
    assert!(broken.contains("step-0000000006: weights.safetensors has digest"), "{broken}");
    let said = place.exits(1, "verify runs/small");
    assert!(said.contains("BROKEN") && said.contains("1 finding"), "{said}");
    // Commands that use the weights refuse them as well.
    let generate = "generate lockfiles/small.lock --prompt-tokens 1 --max-tokens 1 --weights";
    let file = "runs/small/checkpoints/step-0000000006/weights.safetensors";
    let said = place.exits(1, &format!("{generate} {file}"));
    assert!(said.contains("is not what its checkpoint says it is"), "{said}");
    assert!(place.exits(1, "run").contains("weights.safetensors has digest"));
    assert!(place.exits(2, "verify nowhere").contains("nowhere"));
}

#[test]
fn verify_exits_1_for_what_is_missing_swapped_or_added() {
    let place = Place::new(&experiment("small", DEPO, &[]));
    place.exits(0, "run");
    let checkpoints = "runs/small/checkpoints";
    let step = |step: u64| place.path(&format!("{checkpoints}/step-{step:010}"));
    let swap = || {
        let away = place.path("away");
        fs::rename(step(4), &away).unwrap();
        fs::rename(step(6), step(4)).unwrap();
        fs::rename(away, step(6)).unwrap();
    };
    swap();
    let said = place.exits(1, "verify small");
    assert!(said.contains("step-0000000004: it is the state after step 6"), "{said}");
    swap();
    place.exits(0, "verify small");
    let latest = place.path(&format!("{checkpoints}/latest"));
    fs::write(&latest, "").unwrap();
    assert!(place.exits(1, "verify small").contains("should name a checkpoint"));
    fs::write(&latest, "step-0000000006\n").unwrap();
    let kernels = place.path("runs/small/kernels.txt");
    let text = fs::read_to_string(&kernels).unwrap();
    fs::write(&kernels, format!("{text}# more\n")).unwrap();
    assert!(place.exits(1, "verify small").contains("kernels.txt: line"));
    fs::write(&kernels, text).unwrap();
    fs::remove_dir_all(step(6)).unwrap();
    let said = place.exits(1, "verify small");
    assert!(said.contains("the last step, 6, has no checkpoint"), "{said}");
}
