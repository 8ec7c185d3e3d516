//! Opens a page in Chromium and drives it with a script, which reports what it saw as JSON. The page is changed only by one
//! script element and its hash. Without Chromium a test says so, and under CI it fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The Chromium program on this machine.
fn chromium() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
    let path = std::env::var_os("PATH")?;
    let all = std::env::split_paths(&path);
    let all = all.flat_map(|folder| names.map(|name| folder.join(name)));
    all.into_iter().find(|path| path.is_file())
}

#[expect(clippy::print_stderr, reason = "a test that tests less has to say so")]
fn without_chromium() {
    eprintln!(
        "no Chromium is on the PATH: the page was written and read, but not opened; the library's tests of it are what is left"
    );
}

/// Drives the page through the steps in `only`, or through all steps.
pub(super) fn driven(dir: &Path, page: &str, only: &[&str]) -> Option<Value> {
    driven_at(dir, page, only, 1100)
}

/// The same with another window width.
pub(super) fn driven_at(dir: &Path, page: &str, only: &[&str], width: u32) -> Option<Value> {
    let Some(chromium) = chromium() else {
        // A silently skipped check is worthless, so automated tests must have Chromium.
        assert!(
            std::env::var_os("CI").is_none(),
            "no Chromium is on the PATH, and CI is set: install one, or the page is not tested"
        );
        without_chromium();
        return None;
    };
    let drive = format!("const ONLY = {only:?};\n{}", include_str!("drive.js"));
    let hash = Sha256::digest(drive.as_bytes());
    let policy = format!("script-src 'sha256-{}' 'sha256-", base64(&hash));
    let text = fs::read_to_string(dir.join(page)).unwrap();
    assert_eq!(text.matches("script-src 'sha256-").count(), 1);
    let text = text.replace("script-src 'sha256-", &policy);
    let text = text.replace("</body>", &format!("<script>{drive}</script></body>"));
    let path = dir.join("driven.html");
    fs::write(&path, text).unwrap();
    let output = Command::new(chromium)
        .args("--headless --no-sandbox --disable-gpu --disable-quic --no-first-run".split(' '))
        .args("--disable-background-networking --hide-scrollbars --dump-dom".split(' '))
        .args([&format!("--window-size={width},1750"), "--virtual-time-budget=20000"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("file://{}", path.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let Some((_, rest)) = dom.split_once("<pre id=\"driven\">") else {
        panic!("the driver left nothing: {} bytes of DOM, {stderr}", dom.len())
    };
    let decoded = unbase64(rest.split_once("</pre>").unwrap().0);
    let saw: Value = serde_json::from_slice(&decoded).unwrap();
    assert_eq!(saw["broken"], Value::Array(Vec::new()), "{:#}", saw["broken"]);
    Some(saw)
}

const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - three.len()));
        for index in 0..4 {
            let sign = char::from(SIGNS[(word >> (18 - 6 * index) & 63) as usize]);
            text.push(if index <= three.len() { sign } else { '=' });
        }
    }
    text
}

fn unbase64(text: &str) -> Vec<u8> {
    let signs = text.bytes().filter_map(|byte| SIGNS.iter().position(|sign| *sign == byte));
    let signs: Vec<usize> = signs.collect();
    let mut bytes = Vec::new();
    for four in signs.chunks(4) {
        let word =
            four.iter().fold(0_usize, |word, sign| word << 6 | sign) << (6 * (4 - four.len()));
        bytes.extend([word >> 16, word >> 8, word].map(|part| part as u8)[..four.len() - 1].iter());
    }
    bytes
}
