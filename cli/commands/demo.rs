//! `canonc demo`: the whole workflow once, through commands that anyone could type.

use std::path::Path;

use clap::Args;

use crate::child;
use crate::fail::{Failure, Outcome};

/// Prove that a Llama and a LlamaCanon differ only in Canon layers, train both, draw the curves
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  canonc demo              in a clone of the repository, as `make demo` does
  canonc demo --families   then compare attention with the linear mixers, another ten to twenty minutes")]
pub struct DemoArgs {
    /// Then also compare Llama with gated linear attention, Gated DeltaNet and Mamba2
    #[arg(long)]
    pub families: bool,
}

const BASE: &str = "llama_demo";
const TREATED: &str = "llamacanon_demo";
const FAMILIES: [&str; 3] = ["gla_demo", "gdn_demo", "mamba2_demo"];

pub fn demo(args: &DemoArgs) -> Outcome {
    let arch = |name: &str| format!("arch/{name}.canon");
    if !Path::new(&arch(BASE)).is_file() {
        return Err(Failure::bad_input(format!("`{}` does not exist here", arch(BASE)))
            .help("run the demo in the folder of the canonc repository, or create your own with `canonc new DIR`"));
    }
    let lock = |name: &str| format!("lockfiles/{name}.lock");
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<String>>();
    let mut steps = vec![
        words(&["build", &arch(BASE), &arch(TREATED), "recipes/demo.toml"]),
        words(&["diff", &lock(BASE), &lock(TREATED), "--treatment", "canon"]),
        words(&["show", &arch(TREATED), "--seq-len", "128"]),
        words(&["compare", &lock("demo"), "--out", "demo/report.html"]),
    ];
    if args.families {
        let archs = FAMILIES.map(arch);
        let mut build = words(&["build"]);
        build.extend(archs);
        build.push("recipes/demo_families.toml".to_owned());
        steps.push(build);
        for family in FAMILIES {
            steps.push(words(&["diff", &lock(BASE), &lock(family), "--treatment", "mixer"]));
        }
        let page = "demo/families.html";
        steps.push(words(&["compare", &lock("demo_families"), "--out", page]));
    }
    child::steps(steps, "make demo")
}
