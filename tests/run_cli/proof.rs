//! Replay and reproduction, as typed on the command line.

use std::fs;

use compiler::digest::Digest;

use crate::{DEPO, Place, experiment};

/// Halves a step's loss and recomputes chain, checkpoints and attestation, as an attacker would.
fn halve_loss(workspace: &Place, run: &str, step: u64) {
    let tagged = |tag: &str, text: &str| Digest::of(tag, text).to_string();
    let metrics = workspace.path(&format!("{run}/metrics.jsonl"));
    let before = fs::read_to_string(&metrics).unwrap();
    let (mut after, mut chain, mut replaced_digests) = (String::new(), String::new(), Vec::new());
    for line in before.lines() {
        let (body, old) = line.split_once(",\"chain\":\"").unwrap();
        let mut body = format!("{body}}}");
        if body.contains(&format!("\"step\":{step},\"loss\"")) {
            let loss = body.split_once("\"loss\":").unwrap().1.split_once(',').unwrap().0;
            let half = loss.parse::<f64>().unwrap() / 2.0;
            body = body.replacen(&format!("\"loss\":{loss}"), &format!("\"loss\":{half:?}"), 1);
        }
        chain = tagged("canonc.metrics.v1", &format!("{chain}\n{body}"));
        after += &format!("{},\"chain\":\"{chain}\"}}\n", body.strip_suffix('}').unwrap());
        replaced_digests.push((old.strip_suffix("\"}").unwrap().to_owned(), chain.clone()));
    }
    assert_ne!(before, after);
    fs::write(metrics, after).unwrap();
    let mut sealed =
        vec![(workspace.path(&format!("{run}/attestation.toml")), "canonc.attestation.v1")];
    for entry in fs::read_dir(workspace.path(&format!("{run}/checkpoints"))).unwrap() {
        sealed.push((entry.unwrap().path().join("checkpoint.toml"), "canonc.checkpoint.v1"));
    }
    for (file, tag) in sealed {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let (body, rest) = text.split_once("\n[seal]\n").unwrap();
        let body = replaced_digests
            .iter()
            .fold(body.to_owned(), |body, (old, new)| body.replace(old, new));
        let below = rest.split_once('\n').unwrap().1;
        let digest = tagged(tag, &body);
        fs::write(&file, format!("{body}\n[seal]\ndigest = \"{digest}\"\n{below}")).unwrap();
    }
}

#[test]
fn an_edited_loss_is_found_by_replay_and_by_reproduction_alone() {
    let workspace = Place::new(&experiment("small", DEPO, &[]));
    workspace.exits(0, "run");
    let output = workspace.exits(0, "verify --replay all small");
    let closing = output.lines().find(|line| line.starts_with("recomputed: ")).unwrap();
    let trusted = closing.split_once("taken on trust").unwrap().1;
    assert!(!trusted.contains("losses") && !trusted.contains("training"), "{closing}");
    assert!(workspace.exits(0, "verify small").contains("losses and gradient norms"), "no replay");
    // The word after `--replay` is a number, `all` or the run.
    assert!(workspace.exits(0, "verify --replay small").contains("6 of 6 steps"));
    assert!(workspace.exits(0, "verify --replay 2 small").contains("2 of 6 steps"));
    for words in ["verify --replay few small", "verify --replay 0 small", "verify --replay 3"] {
        assert!(
            workspace.exits(2, words).contains("canonc verify --replay [N|all] RUN"),
            "{words}"
        );
    }
    assert!(
        workspace.exits(2, "verify lockfiles/small.lock --replay").contains("no steps to replay")
    );

    let output = workspace.exits(0, "reproduce small");
    assert!(
        output.contains("same bits: 6 of 6 steps, 2 evaluations, every tensor of 2 checkpoints"),
        "{output}"
    );
    let before = fs::read(workspace.path("runs/small/attestation.toml")).unwrap();
    for out in ["runs/small", "runs/small/new/again"] {
        let output = workspace.exits(2, &format!("reproduce small --out {out}"));
        assert!(
            output.contains("is inside the run in") || output.contains("is the run itself"),
            "{output}"
        );
    }
    workspace.exits(0, "reproduce small --out again");
    workspace.holds("again");
    let output = workspace.exits(0, "reproduce small --out again");
    assert!(output.contains("`again` is already finished; nothing was trained"), "{output}");
    workspace.exits(0, "reproduce small --against again");
    assert!(fs::read(workspace.path("runs/small/attestation.toml")).unwrap() == before);

    halve_loss(&workspace, "runs/small", 3);
    workspace.exits(0, "verify --all small");
    let output = workspace.exits(1, "verify small --replay all");
    assert!(output.contains("BROKEN") && output.contains("step 3: loss was "), "{output}");
    for (words, wrong) in [
        ("reproduce small", "only the log is wrong"),
        ("reproduce small --against again", "one of the logs is wrong"),
    ] {
        let output = workspace.exits(1, words);
        assert!(
            output.contains("first difference: step 3: loss was ") && output.contains(wrong),
            "{output}"
        );
    }
    let json = workspace.type_in("reproduce small --json").stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!((&json["same"], &json["first"]["place"]), (&false.into(), &"step 3".into()));
    assert!(workspace.exits(2, "reproduce nowhere").contains("is not a run's folder"));
}
