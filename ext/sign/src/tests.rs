//! Signatures made here and by `ssh-keygen`, and every way in which one can be wrong.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use records::run::Paths;
use records::verify::VerifyReport;
use ssh_key::{HashAlg, PrivateKey, PublicKey};

use super::*;
use crate::run::read_key;

const MESSAGE: &[u8] = include_bytes!("../../../tests/golden/ssh/message");
const KEY: &str = include_str!("../../../tests/golden/ssh/ed25519");
const PUBLIC: &str = include_str!("../../../tests/golden/ssh/ed25519.pub");
const ECDSA_KEY: &str = include_str!("../../../tests/golden/ssh/ecdsa");
const ED25519: &str = include_str!("../../../tests/golden/ssh/ed25519.sig");
const ECDSA: &str = include_str!("../../../tests/golden/ssh/ecdsa.sig");
const RSA_PUBLIC: &str = include_str!("../../../tests/golden/ssh/rsa.pub");
const RSA: &str = include_str!("../../../tests/golden/ssh/rsa.sig");
const OTHER_NAMESPACE: &str = include_str!("../../../tests/golden/ssh/other_namespace.sig");

fn bad(message: &[u8], signature: &str) -> String {
    match check(message, signature) {
        Err(Refused::Bad(reason)) => reason,
        result => panic!("{result:?}"),
    }
}

#[test]
fn signatures_of_ssh_keygen_are_accepted() {
    let signer = check(MESSAGE, ED25519).unwrap();
    let public = PublicKey::from_openssh(PUBLIC).unwrap();
    assert_eq!(signer.fingerprint(), public.fingerprint(HashAlg::Sha256).to_string());
    assert_eq!(signer.algorithm(), "ssh-ed25519");
    assert_eq!(check(MESSAGE, ECDSA).unwrap().algorithm(), "ecdsa-sha2-nistp256");
    // Not built in: reported as such, neither accepted nor called bad.
    assert!(
        matches!(check(MESSAGE, RSA), Err(Refused::Unsupported { reason, .. }) if reason.contains("rsa"))
    );
}

#[test]
fn a_key_that_nobody_listed_is_refused_whatever_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let paths = Paths::new(folder.path());
    std::fs::write(paths.attestation(), MESSAGE).unwrap();
    std::fs::write(paths.signature(), RSA).unwrap();
    let findings = |list: &str| {
        let signers = AllowedSigners::parse(list).unwrap();
        let trusted = Trusted { signers: &signers, file: "list", identity: None, now: 0 };
        let mut verified = VerifyReport::default();
        report(&paths, Some(trusted), &mut verified);
        (verified.broken.join("; "), verified.undecided.join("; "))
    };
    let (broken, undecided) = findings(&format!("ada {PUBLIC}"));
    assert!(broken.contains("no line lists key") && undecided.is_empty(), "{broken}{undecided}");
    let (broken, undecided) = findings(&format!("ada {RSA_PUBLIC}"));
    assert!(broken.is_empty() && undecided.contains("ssh-keygen -Y verify"), "{broken}{undecided}");
}

#[test]
fn a_signature_with_a_flipped_bit_is_bad_and_never_of_an_unsupported_kind() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let lines: Vec<&str> = ED25519.lines().collect();
    let inside = STANDARD.decode(lines[1..lines.len() - 1].concat()).unwrap();
    for at in 0..inside.len() {
        for bit in 0..8 {
            let mut bytes = inside.clone();
            bytes[at] ^= 1 << bit;
            let text = STANDARD.encode(&bytes);
            let text: Vec<&str> =
                text.as_bytes().chunks(70).map(|line| std::str::from_utf8(line).unwrap()).collect();
            let text = format!("{}\n{}\n{}\n", lines[0], text.join("\n"), lines[lines.len() - 1]);
            let result = check(MESSAGE, &text);
            assert!(matches!(result, Err(Refused::Bad(_))), "byte {at}, bit {bit}: {result:?}");
        }
    }
}

#[test]
fn white_space_around_a_signature_counts_as_for_ssh_keygen() {
    // Each was tried with `ssh-keygen -Y verify` of OpenSSH 9.2.
    let trimmed = ED25519.trim_end();
    for good in ["", "\n\n", " \t\n", "\r\n"] {
        assert!(check(MESSAGE, &format!("{trimmed}{good}")).is_ok(), "{good:?}");
    }
    assert!(check(MESSAGE, &ED25519.replace('\n', "\r\n")).is_err());
    assert!(check(MESSAGE, &format!("\n{ED25519}")).is_err());
    assert!(check(MESSAGE, &format!("\u{feff}{ED25519}")).is_err());
}

#[test]
fn a_line_that_excludes_everybody_allows_nobody() {
    let signer = check(MESSAGE, ED25519).unwrap();
    for (principals, wanted) in [
        ("ada,!bob", Some("ada")),
        ("*,!bob", Some("*")),
        ("ada,bob,!a*", Some("bob")),
        ("!bob", None),
        ("ada,!ada", None),
        ("ada,!*", None),
    ] {
        let signers = AllowedSigners::parse(&format!("{principals} {PUBLIC}")).unwrap();
        match (signers.find(&signer, None, 0), wanted) {
            (Listed::As(names), Some(wanted)) => assert_eq!(names, wanted),
            (Listed::No(reason), None) => assert!(reason.contains("for nobody"), "{reason}"),
            (listed, wanted) => panic!("{principals}: {listed:?}, not {wanted:?}"),
        }
    }
}

#[test]
fn our_signature_equals_that_of_ssh_keygen() {
    // For Ed25519, a key has exactly one signature of a message.
    let ours = sign(MESSAGE, &PrivateKey::from_openssh(KEY).unwrap()).unwrap();
    assert_eq!(ours, ED25519);
    let ours = sign(MESSAGE, &PrivateKey::from_openssh(ECDSA_KEY).unwrap()).unwrap();
    assert!(check(MESSAGE, &ours).is_ok());
}

#[test]
fn any_changed_byte_is_refused() {
    for at in 0..MESSAGE.len() {
        let mut message = MESSAGE.to_vec();
        message[at] ^= 1;
        assert!(bad(&message, ED25519).contains("signature of the current file"));
    }
    assert!(bad(&[MESSAGE, b"\n"].concat(), ED25519).contains("signature of the current file"));
    assert!(bad(MESSAGE, OTHER_NAMESPACE).contains("it was made for `file`"));
    // Changes to the signature itself: another letter, cut anywhere, or something else altogether.
    for at in 0..ED25519.len() {
        let mut text = ED25519.as_bytes().to_vec();
        text[at] = if text[at] == b'A' { b'B' } else { b'A' };
        let text = String::from_utf8(text).unwrap();
        assert!(check(MESSAGE, &text).is_err(), "{at}");
        // Without its last line feed it is still valid.
        if at + 1 < ED25519.len() {
            assert!(check(MESSAGE, &ED25519[..at]).is_err(), "{at}");
        }
    }
    assert!(bad(MESSAGE, "hello").contains("not an SSH signature"));
}

#[test]
fn a_signer_counts_within_the_limits_of_its_line() {
    let signer = check(MESSAGE, ED25519).unwrap();
    let find = |limits: &str, identity: Option<&str>| {
        let text = format!("ada@lab.org,*@home.org {limits} {PUBLIC}");
        AllowedSigners::parse(&text).unwrap().find(&signer, identity, 1_600_000_000)
    };
    for (limits, identity, wanted) in [
        ("", None, Ok(())),
        ("", Some("ada@lab.org"), Ok(())),
        ("", Some("eve@home.org"), Ok(())),
        ("", Some("eve@lab.org"), Err("not as eve@lab.org")),
        ("namespaces=\"git,canonc-attestation\"", None, Ok(())),
        ("namespaces=\"git\"", None, Err("for git only")),
        ("valid-after=\"20200101Z\",valid-before=\"20210101Z\"", None, Ok(())),
        ("valid-after=\"20210101Z\"", None, Err("not valid yet")),
        ("valid-before=\"20200101Z\"", None, Err("it has expired")),
        ("cert-authority", None, Err("a certificate authority")),
    ] {
        match (find(limits, identity), wanted) {
            (Listed::As(names), Ok(())) => {
                assert_eq!(names, identity.unwrap_or("ada@lab.org,*@home.org"));
            }
            (Listed::No(reason), Err(part)) => assert!(reason.contains(part), "{limits}: {reason}"),
            (listed, wanted) => panic!("{limits} {identity:?}: {listed:?}, not {wanted:?}"),
        }
    }
    let key = PrivateKey::from_openssh(ECDSA_KEY).unwrap();
    let text = format!("ada {}", key.public_key().to_openssh().unwrap());
    let listed = AllowedSigners::parse(&text).unwrap().find(&signer, None, 0);
    assert!(matches!(listed, Listed::No(reason) if reason.contains("no line lists key SHA256:")));
}

#[test]
fn a_key_that_cannot_sign_here_is_refused_with_the_command_that_can() {
    let path = |name: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/ssh").join(name)
    };
    let wrong =
        |name: &str| read_key(&path(name), Path::new("runs/a/attestation.toml")).unwrap_err();
    for (name, what) in [("locked", "passphrase"), ("ed25519.pub", "is a public key")] {
        let error = wrong(name);
        assert!(error.message.contains(what), "{error}");
        assert!(error.help.contains("ssh-keygen -Y sign -n canonc-attestation -f "), "{error}");
        assert!(error.help.ends_with(" runs/a/attestation.toml"), "{error}");
    }
    assert!(wrong("message").message.contains("not a private key in OpenSSH's format"));
    assert!(wrong("nowhere").message.contains("cannot be read"));
}

/// Without ssh-keygen it reports that it did not run. The tests above prove the same with files that ssh-keygen made.
#[test]
fn ssh_keygen_accepts_ours_where_it_is_installed() {
    let installed =
        Command::new("ssh-keygen").arg("-?").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if let Err(error) = installed {
        // Bypasses the capture of output, so a skipped check is never silent.
        let note = "ssh-keygen on our signatures; the signatures in tests/golden/ssh, which it made, are checked";
        writeln!(std::io::stderr(), "\nNOT RUN: {note} ({error})").unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, content: &[u8]| std::fs::write(path(name), content).unwrap();
    write("allowed", format!("ada@lab.org {PUBLIC}").as_bytes());
    write("sig", sign(MESSAGE, &PrivateKey::from_openssh(KEY).unwrap()).unwrap().as_bytes());
    let accepts = |message: &[u8]| {
        write("message", message);
        let status = Command::new("ssh-keygen")
            .args(["-Y", "verify", "-n", NAMESPACE, "-I", "ada@lab.org", "-f"])
            .arg(path("allowed"))
            .arg("-s")
            .arg(path("sig"))
            .stdin(std::fs::File::open(path("message")).unwrap())
            .output()
            .unwrap();
        status.status.success()
    };
    assert!(accepts(MESSAGE));
    assert!(!accepts(b"another"));
}
