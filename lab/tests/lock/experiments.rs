//! Random pairs of experiments: shared parameters, parameter groups, dropout, tensors that pass between layers, experts.
//!
//! What cannot be built gives no pair. Both the arms that only their fills tell apart and those that only a role does are common.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use compiler::program::{Program, Std};
use lab::lock::Lock;
use proptest::prelude::*;
use proptest::sample::select;

use support::locks::{experiments_of, locked};

/// Definitions that archs use. Those of a pair of letters give equal graphs, and give a parameter another role.
const OWN: &str = "
mlp conv_a(x; hidden = 16) {
  share c = short_conv
  a = c(x)
  b = canon c2 (x, kernel = 4, weight = c)
  linear down (a + b, dim)
}
mlp conv_b(x; hidden = 16) {
  share c = canon
  b = c(x)
  a = short_conv c2 (x, kernel = 4, weight = c)
  linear down (a + b, dim)
}
mlp linear_a(x; hidden = 16) {
  share c = canon { init normal(0.1) }
  c(x) + linear up (linear few (x, 4), dim, weight = c)
}
mlp linear_b(x; hidden = 16) {
  share c = linear { init normal(0.1) }
  up = c(linear few (x, 4), dim)
  canon filter (x, kernel = 4, weight = c) + up
}
mlp twice(x; hidden = 16) {
  share up = linear
  linear down (silu(up(x, hidden)) * up(-x, hidden), dim)
}
mlp dropping(x; hidden = 16, rate = 0.1) {
  linear down (dropout(silu(linear up (x, hidden)), rate), dim)
}
mlp passing(x; hidden = 16) {
  v = linear up (x, hidden)
  carry first = v else { v = (v + first) / 2 }
  linear down (silu(v), dim)
}
mixer carrying(x) {
  v = linear wv (x, dim)
  carry values = v else { v = v + values }
  linear wo (dropout(short_conv conv (v), 0.2), dim)
}
block dropped(x; rate = 0.1) { x + dropout(linear w (x, dim), rate) }
block still(x) { x + linear w (x, dim) }
block filter_a(x) {
  share c = short_conv
  c(x) + canon c2 (x, kernel = 4, residual = false, weight = c)
}
block filter_b(x) {
  share c = canon { kernel 4, residual false }
  short_conv c2 (x, kernel = 4, weight = c) + c(x)
}
block two_drops(x; mixer, mlp, rate = 0.1) {
  h = x + dropout(mixer(slot A(rms_norm pre_mixer (x))), rate)
  h + dropout(mlp(slot C(rms_norm pre_mlp (h))), rate)
}
";

const BLOCKS: [&str; 4] = ["decoder", "dropout_decoder", "two_drops", "two_drops { rate 0 }"];
const MIXERS: [&str; 3] = ["attention { heads 2 }", "carrying", "carrying"];
const MLPS: [&str; 9] = [
    "conv_a",
    "conv_b",
    "linear_a",
    "linear_b",
    "twice",
    "dropping",
    "passing",
    "moe { count 2, active 1, hidden 8 }",
    "swiglu { hidden 16 }",
];
const FILLS: [&str; 9] = [
    "canon",
    "canon { kernel 3 }",
    "short_conv",
    "short_conv { bias true }",
    "dropped",
    "dropped { rate 0.2 }",
    "still",
    "filter_a",
    "filter_b",
];
const SLOTS: [&str; 4] = ["A", "C", "layers[0].A", "layers[1].C"];

/// Lines under `[optimizer]`.
const GROUPS: [&str; 12] = [
    "",
    "lr_multipliers = [[\":canon?\", 0.25]]",
    "lr_multipliers = [[\":short_conv?\", 0.5], [\":linear\", 2]]",
    "lr_multipliers = [[\":up?\", 0.5]]",
    "lr_multipliers = [[\":w?\", 0.5], [\"layers.0.**\", 2]]",
    "weight_decay_multipliers = [[\":canon?\", 0], [\":norm\", 0]]",
    "frozen = [\":embed\", \":short_conv?\"]",
    "frozen = [\"layers.*.A.**?\"]",
    "decay = \"matrices\"",
    "decay = \"matrices\", lr_multipliers = [[\":canon?\", 0.25], [\"**.up?\", 3]]",
    "kind = \"muon\", muon = [\"layers.**:linear\"]",
    "kind = \"muon\", muon = [\"layers.**.down\"], lr_multipliers = [[\":canon?\", 2]]",
];

#[derive(Clone, Debug, PartialEq)]
struct Arm {
    block: &'static str,
    mixer: &'static str,
    mlp: usize,
    share: bool,
    head: &'static str,
    fills: Vec<(&'static str, &'static str)>,
    groups: &'static str,
    seed: u8,
}

/// Two arms and a treatment.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    arms: [Arm; 2],
    treatment: u8,
}

fn fills() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    prop::collection::vec((select(SLOTS.to_vec()), select(FILLS.to_vec())), 0..3)
}

fn arm() -> impl Strategy<Value = Arm> {
    let heads = select(vec!["untied", "tied", "tied"]);
    (
        select(BLOCKS.to_vec()),
        select(MIXERS.to_vec()),
        0..MLPS.len(),
        prop::bool::weighted(0.2),
        heads,
        fills(),
        select(GROUPS.to_vec()),
    )
        .prop_map(|(block, mixer, mlp, share, head, fills, groups)| Arm {
            block,
            mixer,
            mlp,
            share,
            head,
            fills,
            groups,
            seed: 1,
        })
}

pub(crate) fn pair() -> impl Strategy<Value = Pair> {
    (arm(), arm(), any::<[u8; 7]>(), any::<u8>()).prop_map(|(a, other, keep, treatment)| {
        // Most pairs share everything but fills; a part of them differs in a role alone.
        let mut b = a.clone();
        let often = |n: usize, share: u8| keep[n] < share;
        b.fills = if often(0, 210) { other.fills } else { b.fills };
        b.mlp = match keep[1] {
            0..60 if a.mlp < 4 => a.mlp ^ 1,
            240.. => other.mlp,
            _ => a.mlp,
        };
        if often(2, 12) {
            b.groups = other.groups;
        }
        if often(3, 8) {
            b.block = other.block;
        }
        if often(4, 8) {
            b.mixer = other.mixer;
        }
        if often(5, 8) {
            b.head = other.head;
        }
        if often(6, 8) {
            b.seed = 2;
        }
        Pair { arms: [a, b], treatment }
    })
}

impl Arm {
    fn text(&self) -> String {
        let Arm { block, mixer, mlp, share, head, fills, .. } = self;
        let (name, settings) = block.split_once(" { ").unwrap_or((block, ""));
        let settings = settings.trim_end_matches('}');
        let share = if *share { "share " } else { "" };
        let mut text = format!(
            "{OWN}arch base {{\n  vocab 104  dim 16  norm_eps 1e-5\n  init lingua\n  head {head}\n  layers 2 of {share}{name} \
             {{ mixer {mixer}  mlp {}  {settings} }}\n}}\narch x = base with {{\n",
            MLPS[*mlp]
        );
        let mut taken = BTreeSet::new();
        for (slot, fill) in fills {
            // A slot is filled once.
            if taken.insert(slot.chars().last()) {
                let _ = writeln!(text, "  fill {slot} with {fill}");
            }
        }
        text + "  vocab 104\n}\n"
    }

    fn lock(&self, name: &str) -> Option<Lock> {
        let program = Program::new([("test.canon".to_owned(), self.text())], Std::Embedded);
        let compiled = program.compile("test.canon", "x").0?;
        let dropout = if compiled.graph.has_dropout() { ", dropout = 3" } else { "" };
        let groups = match self.groups {
            "" => String::new(),
            groups => format!(", {groups}"),
        };
        let recipe = format!(
            "arch = \"x.canon\"\n\
             data = {{ task = \"depo\", seq_len = 64, ids = \"dense\", depo.N = 12, depo.K = 2, depo.mini_vocab = 50, depo.min_tlen = 1, depo.max_tlen = 2 }}\n\
             batch = {{ sequences = 2 }}\n\
             optimizer = {{ lr = 0.003, weight_decay = 0.03{groups} }}\n\
             schedule = {{ kind = \"cosine\", warmup = 2 }}\n\
             budget = {{ steps = 6 }}\n\
             seeds = {{ init = {}, data = 1{dropout} }}\n",
            self.seed
        );
        let experiments =
            experiments_of(&format!("recipes/{name}.toml"), &recipe, &locked(&compiled));
        Some(Lock::Experiment(experiments.ok()?.pop()?))
    }
}

impl Pair {
    /// Both locks, under these names.
    pub(crate) fn locks(&self, names: &[String; 2]) -> Option<[Lock; 2]> {
        let [a, b] = &self.arms;
        Some([a.lock(&names[0])?, b.lock(&names[1])?])
    }

    /// Often the slots in which the arms differ, or all of them except one.
    pub(crate) fn treatment(&self) -> Vec<String> {
        let [a, b] = &self.arms;
        let slots = |ours: &Arm, theirs: &Arm| -> Vec<String> {
            let extra = ours.fills.iter().filter(|fill| !theirs.fills.contains(fill));
            extra.map(|(slot, _)| format!("slots.{}", slot.rsplit('.').next().unwrap())).collect()
        };
        let differing: BTreeSet<String> = slots(a, b).into_iter().chain(slots(b, a)).collect();
        let mut differing: Vec<String> = differing.into_iter().collect();
        match self.treatment {
            0..60 => vec!["canon".to_owned()],
            60..80 => Vec::new(),
            80..100 => {
                differing.pop();
                differing
            }
            _ => differing,
        }
    }
}
