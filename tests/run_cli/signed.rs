//! `canonc sign`, and what `canonc verify` says of a signature.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::{DEPO, Place, experiment};

fn key(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/ssh").join(name)
}

#[test]
fn an_attestation_is_signed_and_the_signature_checked() {
    let workspace = Place::new(&experiment("small", DEPO, &[("steps = 6", "steps = 2")]));
    let sign = format!("sign small --key {}", key("ed25519").display());
    assert!(workspace.exits(2, &sign).contains("is not a run's folder"));
    workspace.exits(75, "run --stop-after-step 1");
    let output = workspace.exits(1, &sign);
    assert!(output.contains("is not finished") && output.contains("continue it with"), "{output}");
    workspace.exits(0, "run");
    assert!(workspace.exits(0, "verify small").contains("is not signed"));
    let output = workspace.exits(0, &sign);
    assert!(
        output.contains("signed runs/small/attestation.toml with ssh-ed25519 key SHA256:"),
        "{output}"
    );
    assert!(workspace.exits(2, &sign).contains("is already signed"));
    workspace.exits(0, &format!("{sign} --replace"));
    let output = workspace.exits(0, "verify small");
    assert!(
        output.contains("the owner of the key was not checked") && !output.contains("other files"),
        "{output}"
    );

    assert_only_allowed_signers_pass(&workspace);
    assert_ssh_keygen_accepts(&workspace);

    // Change the timings below the seal, which no digest covers.
    let attestation = workspace.path("runs/small/attestation.toml");
    let mut text = fs::read_to_string(&attestation).unwrap();
    text = text.replacen("processes = 2", "processes = 1", 1);
    fs::write(&attestation, text).unwrap();
    for words in ["verify small", "verify small --signers ada"] {
        assert!(workspace.exits(1, words).contains("signature of the current file"), "{words}");
    }
    fs::remove_file(workspace.path("runs/small/attestation.toml.sig")).unwrap();
    assert!(workspace.exits(1, "verify small --signers ada").contains("not signed"));
}

/// Leaves `ada`, a list of allowed signers that has the key. `bob` and `wrong` do not.
fn assert_only_allowed_signers_pass(workspace: &Place) {
    let public = fs::read_to_string(key("ed25519.pub")).unwrap();
    fs::write(workspace.path("ada"), format!("ada@lab.org {public}")).unwrap();
    fs::write(
        workspace.path("bob"),
        format!("bob@lab.org {}", fs::read_to_string(key("ecdsa.pub")).unwrap()),
    )
    .unwrap();
    let output = workspace.exits(0, "verify small --signers ada --identity ada@lab.org");
    assert!(output.contains("signed by ada@lab.org (ssh-ed25519 SHA256:"), "{output}");
    assert!(
        workspace
            .exits(1, "verify small --signers ada --identity bob@lab.org")
            .contains("not as bob@lab.org")
    );
    assert!(workspace.exits(1, "verify small --signers bob").contains("which bob does not allow"));
    assert!(workspace.exits(2, "verify small --identity ada@lab.org").contains("--signers"));
    fs::write(workspace.path("wrong"), "ada@lab.org ssh-ed25519 AAAA\n").unwrap();
    assert!(workspace.exits(2, "verify small --signers wrong").contains("wrong:1"));
}

/// The same signature, checked by `ssh-keygen` with the signers of `ada`.
fn assert_ssh_keygen_accepts(workspace: &Place) {
    let attestation = workspace.path("runs/small/attestation.toml");
    let signature = workspace.path("runs/small/attestation.toml.sig");
    let is_accepted = |identity: &str| {
        Command::new("ssh-keygen")
            .args(["-Y", "verify", "-n", "canonc-attestation", "-I", identity, "-f"])
            .arg(workspace.path("ada"))
            .arg("-s")
            .arg(&signature)
            .stdin(fs::File::open(&attestation).unwrap())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map(|status| status.success())
    };
    match is_accepted("ada@lab.org") {
        Ok(accepted) => assert!(accepted && !is_accepted("bob@lab.org").unwrap()),
        // Bypass the capture of output, so that a skipped check is visible.
        Err(error) => {
            let mut stderr = std::io::stderr();
            writeln!(
                stderr,
            "\nNOT RUN: ssh-keygen on a signature of `canonc sign` ({error}); what proves it here are the signatures \
             in tests/golden/ssh, which ssh-keygen made and the tests of ext/sign compare with ours"
        )
            .unwrap();
        }
    }
}
