//! What the optimizer does to parameters where a graph does not show it: roles behind shared weights, in verdicts by
//! `diff` and by `docs/check_verdict.py`.

use std::collections::BTreeMap;

use compiler::digest::Digest;
use lab::experiment::updates::WEIGHTS;
use lab::lock::{Lock, read as read_lock, write};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::experiments;
use super::verdicts::{by_diff, cases, compare, script};
use support::locks::{DEPO, compiled_text, experiments_of, locked, small};

/// Pairs of experiments whose archs share parameters, drop, pass tensors between layers and choose experts.
#[test]
fn random_experiments_agree() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut left, mut number, mut roles) = (cases(), 0, 0);
    while left > 0 {
        let count = left.min(500);
        let (mut locks, mut pairs) = (BTreeMap::new(), Vec::new());
        while pairs.len() < count {
            let pair = experiments::pair().new_tree(&mut runner).unwrap().current();
            let names = ["a", "b"].map(|arm| format!("experiment-{number}{arm}"));
            number += 1;
            assert!(number < 100 * cases(), "most pairs cannot be built");
            let Some(both) = pair.locks(&names) else { continue };
            for (name, lock) in names.iter().zip(both) {
                let text = write(&lock);
                locks.insert(name.clone(), (lock, text));
            }
            let [a, b] = names;
            pairs.push((a, b, pair.treatment()));
        }
        let by_role = |(a, b, treatment): &(String, String, Vec<String>)| {
            by_diff(&locks[a], &locks[b], treatment).1.contains("role of")
        };
        roles += pairs.iter().filter(|pair| by_role(pair)).count();
        compare(&format!("experiments-{left}"), &locks, &pairs);
        left -= count;
    }
    assert!(roles > 0, "no pair differs in a role");
}

const SHARED: &str = "mlp ra(x; hidden = 64) {
  share c = short_conv
  a = c(x)
  b = canon c2 (x, kernel = 4, weight = c)
  linear down (a + b, dim)
}
mlp rb(x; hidden = 64) {
  share c = canon
  b = c(x)
  a = short_conv c2 (x, kernel = 4, weight = c)
  linear down (a + b, dim)
}
mlp pa(x; hidden = 64) {
  share c = canon { init normal(0.1) }
  c(x) + linear up (linear few (x, 4), dim, weight = c)
}
mlp pb(x; hidden = 64) {
  share c = linear { init normal(0.1) }
  up = c(linear few (x, 4), dim)
  canon filter (x, kernel = 4, weight = c) + up
}
";

/// The owner of a shared weight has one role in one arm and another in the other: graphs, paths, shapes and initial
/// distributions are equal, and the optimizer treats it in two ways.
#[test]
fn a_role_behind_a_shared_weight_is_a_confound() {
    let arch = |mlp: &str, edits: &str| {
        format!(
            "{SHARED}arch base {{ vocab 104 dim 64 norm_eps 1e-5 init lingua
             layers 2 of decoder {{ mixer attention {{ heads 4 }}  mlp {mlp} }} }}
             arch x = base with {{ vocab 104  {edits} }}\n"
        )
    };
    let canon = "lr_multipliers = [[\":canon?\", 0.25]]";
    let (path, role) = ("lr_multipliers = [[\"**.c\", 0.25]]", "frozen = [\":canon?\"]");
    let (matrices, plain) = ("decay = \"matrices\"", "eps = 1e-8");
    let cases = [
        ("alone", ["ra", "rb"], ["", ""], canon, "", "confounded"),
        ("canon", ["ra", "rb"], ["", "canon A"], canon, "canon", "confounded"),
        ("same", ["ra", "ra"], ["", "canon A"], canon, "canon", "controlled"),
        // Without a pattern that tells the roles apart they make no difference.
        ("plain", ["ra", "rb"], ["", "canon A"], plain, "canon", "controlled"),
        ("by-path", ["ra", "rb"], ["", ""], path, "", "identical"),
        // Only projections and tables decay.
        ("decay", ["pa", "pb"], ["", ""], matrices, "", "confounded"),
        ("decay-canon", ["pa", "pb"], ["", "canon A"], matrices, "canon", "confounded"),
        ("decay-plain", ["pa", "pb"], ["", "canon A"], plain, "canon", "controlled"),
        ("decay-same", ["pa", "pa"], ["", "canon A"], matrices, "canon", "controlled"),
        ("frozen", ["pa", "pb"], ["", ""], role, "", "confounded"),
    ];
    let (mut locks, mut pairs) = (BTreeMap::new(), Vec::new());
    for (name, mlps, edits, optimizer, treatment, _) in &cases {
        let names = [format!("{name}-a"), format!("{name}-b")];
        for ((name, mlp), edits) in names.iter().zip(mlps).zip(edits) {
            let recipe = DEPO
                .replace("seq_len", "ids = \"dense\", seq_len")
                .replace("lr = ", &format!("{optimizer}, lr = "));
            let arch = locked(&compiled_text(&arch(mlp, edits), "x"));
            let experiments =
                experiments_of(&format!("recipes/{name}.toml"), &recipe, &arch).unwrap();
            let lock = Lock::Experiment(experiments.into_iter().next().unwrap());
            let text = write(&lock);
            assert_eq!(write(&read_lock(name, &text).unwrap()), text);
            locks.insert(name.clone(), (lock, text));
        }
        let [a, b] = names;
        let treatment = treatment.split(' ').filter(|t| !t.is_empty()).map(str::to_owned);
        pairs.push((a, b, treatment.collect()));
    }
    let (_, reason, _) = by_diff(&locks["alone-a"], &locks["alone-b"], &[]);
    assert_eq!(reason, "role of layers.0..2.mlp.c");
    let want: Vec<&str> = cases.iter().map(|case| case.5).collect();
    if let Some(outcomes) = compare("roles", &locks, &pairs) {
        assert_eq!(outcomes, want);
    }
}

/// A lock that was written before locks listed updates is still one, with its ids.
#[test]
fn a_lock_without_its_list_of_updates_is_read() {
    let recipe = DEPO.replace("lr = ", "frozen = [\":norm\"], lr = ");
    let experiments = experiments_of("recipes/x.toml", &recipe, &small()).unwrap();
    let text = write(&Lock::Experiment(experiments.into_iter().next().unwrap()));
    let (before, rest) = text.split_once("\n[updates]\n").unwrap();
    let (list, after) = rest.split_once("\n[arch]\n").unwrap();
    assert!(list.starts_with("groups = '''\nlayers.0.pre_mixer frozen\n"), "{list}");
    let older = sealed(&format!("{before}\n[arch]\n{after}"));
    assert_eq!(write(&read_lock("x", &older).unwrap()), text);
    let wrong = sealed(&text.replace("layers.0.pre_mixer frozen", "layers.0.pre_mixer adamw 1 0"));
    assert!(read_lock("x", &wrong).is_err());
}

/// The text with the digest of itself.
fn sealed(text: &str) -> String {
    let start = text.find("\ntext = \"").unwrap() + 1;
    let end = start + text[start..].find('\n').unwrap() + 1;
    let digest = Digest::of("canonc.lock.v1", &format!("{}{}", &text[..start], &text[end..]));
    format!("{}text = \"{digest}\"\n{}", &text[..start], &text[end..])
}

/// The script knows the operand of each projection and table that is its weight.
#[test]
fn weights_are_those_of_the_script() {
    let script = std::fs::read_to_string(script()).unwrap();
    let listed: Vec<String> =
        WEIGHTS.iter().map(|(name, operand)| format!("\"{name}\": {operand}")).collect();
    assert!(script.contains(&format!("\nDECAYED = {{{}}}\n", listed.join(", "))), "{listed:?}");
}
