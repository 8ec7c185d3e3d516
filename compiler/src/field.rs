//! THE field table: every field of an experiment, what it may hold and what it means for a result.
//!
//! In: nothing. Out: [`TABLE`], read by recipes, locks, comparisons and reports alike. Must stay true
//! (design, section 6): a field's class stands here and nowhere else, and a test mutates each field
//! and sees the digests change as its class promises; a field added after version 1 enters a digest
//! only when it differs from its neutral value; fields of the arch are not listed here, since each
//! arch brings its own (`arch.layers.3.mixer.heads`): they are semantic by way of `arch.graph` and
//! `arch.manifest`, so that renaming or refactoring an arch changes no id.

mod value;

use std::collections::BTreeMap;

pub use value::{Bounds, FieldValue, Kind, UNBOUND};
pub(crate) use value::{one_of, quote, row, shown, string};

/// Values of free fields by path.
pub type Fields = BTreeMap<String, FieldValue>;

/// What a field means for a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Changes the computation in exact arithmetic: part of the `train` digest, which is the id.
    Semantic,
    /// Changes no weight but what is measured of them: part of the `eval` digest.
    Measured,
    /// Changes rounding only: part of the `platform` digest.
    Platform,
    /// Changes no bit of any loss or weight: part of no digest but the file's own.
    Cosmetic,
}

/// Where a field's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Someone chose it.
    Free,
    /// Computed from free fields.
    Derived,
    /// Whichever of `budget.steps` and `budget.tokens` was not chosen follows from the other; both
    /// decide training, so a difference in either is a confound unless it is in the treatment.
    Decides,
}

/// What stands where nothing was written.
#[derive(Clone, Copy)]
pub enum Default {
    /// Nothing: it has to be written.
    Required,
    /// A value, as TOML.
    Is(&'static str),
    /// Follows from other fields, as these words say.
    From(fn(&Fields) -> Option<FieldValue>, &'static str),
}

/// One row.
#[derive(Clone, Copy)]
pub struct FieldDef {
    pub path: &'static str,
    pub class: Class,
    pub origin: Origin,
    pub kind: Kind,
    pub default: Default,
    /// The field exists only where another one holds one of these words.
    pub only: Option<(&'static str, &'static [&'static str])>,
    /// The lock version that brought it.
    pub since: u32,
    /// For fields younger than version 1: the value under which a run is what it was without them.
    pub neutral: &'static str,
    pub unit: &'static str,
    pub doc: &'static str,
    /// What others call it; suggested, never accepted.
    pub also: &'static [&'static str],
}

const fn free(path: &'static str, class: Class, kind: Kind, doc: &'static str) -> FieldDef {
    let (origin, default) = (Origin::Free, Default::Required);
    let (only, since, neutral, unit, also) = (None, 1, "", "", &[]);
    FieldDef { path, class, origin, kind, default, only, since, neutral, unit, doc, also }
}

const fn derived(
    path: &'static str,
    class: Class,
    unit: &'static str,
    doc: &'static str,
) -> FieldDef {
    let kind = Kind::Name;
    FieldDef { origin: Origin::Derived, unit, ..free(path, class, kind, doc) }
}

impl FieldDef {
    const fn is(self, value: &'static str) -> FieldDef {
        FieldDef { default: Default::Is(value), ..self }
    }

    const fn from(self, rule: fn(&Fields) -> Option<FieldValue>, words: &'static str) -> FieldDef {
        FieldDef { default: Default::From(rule, words), ..self }
    }

    const fn only(self, path: &'static str, words: &'static [&'static str]) -> FieldDef {
        FieldDef { only: Some((path, words)), ..self }
    }

    const fn unit(self, unit: &'static str) -> FieldDef {
        FieldDef { unit, ..self }
    }

    const fn also(self, also: &'static [&'static str]) -> FieldDef {
        FieldDef { also, ..self }
    }

    const fn decides(self) -> FieldDef {
        FieldDef { origin: Origin::Decides, ..self }
    }

    /// Whether the field exists beside these values.
    pub fn exists(&self, fields: &Fields) -> bool {
        holds(self.only, fields)
    }

    /// Whether a value is part of its class's digest.
    pub fn enters(&self, value: &FieldValue) -> bool {
        self.since == 1 || value.to_string() != self.neutral
    }

    /// `optimizer` of `optimizer.lr`.
    pub fn section(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(section, _)| section)
    }
}

const COUNT: i64 = 1_000_000_000_000;
const TASK: &str = "data.task";
const KIND: &str = "schedule.kind";
/// Tasks with a generator.
const SYNTHETIC: &[&str] = &["brevo", "capo", "depo", "lano", "mano", "multihop"];
/// Tasks whose samples have a largest size.
const SIZED: &[&str] = &["brevo", "depo", "mano"];
/// Tasks whose samples begin with a token of their own.
const MARKED: &[&str] = &["brevo", "depo", "mano"];
/// Tasks that are measured by what a model writes.
const WRITTEN: &[&str] = &["brevo", "lano"];
const BREVO: &[&str] = &["brevo"];
const CAPO: &[&str] = &["capo"];
const DEPO: &[&str] = &["depo"];
const LANO: &[&str] = &["lano"];
const MULTIHOP: &[&str] = &["multihop"];
/// The published grammars and how many tokens each has.
pub(crate) const GRAMMARS: [(&str, i64); 9] = [
    ("cfg3b", 3),
    ("cfg3e1", 9),
    ("cfg3e2", 4),
    ("cfg3f", 3),
    ("cfg3g", 3),
    ("cfg3h", 3),
    ("cfg3i", 3),
    ("cfg3j", 3),
    ("cfg3k", 3),
];
const CONFIGS: &[&str] =
    &["cfg3b", "cfg3e1", "cfg3e2", "cfg3f", "cfg3g", "cfg3h", "cfg3i", "cfg3j", "cfg3k"];
/// What can be measured, and of which tasks alone.
pub(crate) const METRICS: [(&str, Option<&[&str]>); 6] = [
    ("answer_accuracy", Some(&["brevo", "capo", "depo", "mano", "multihop", "text"])),
    ("bits", Some(CAPO)),
    ("kl", Some(LANO)),
    ("loss", None),
    ("token_accuracy", Some(&["brevo", "capo", "depo", "mano", "multihop", "text"])),
    ("validity", Some(LANO)),
];
/// Their words.
pub(crate) const MEASURES: &[&str] =
    &["answer_accuracy", "bits", "kl", "loss", "token_accuracy", "validity"];
/// Of these, those of which less is better.
pub(crate) const LESS_IS_BETTER: &[&str] = &["kl", "loss"];
const MANO: &[&str] = &["mano"];
const TEXT: &[&str] = &["text"];
const WARMED: &[&str] = &["cosine", "inv_sqrt", "linear", "wsd"];

use Class::{Cosmetic, Measured, Platform, Semantic};
use Kind::{Bool, Digest, Int, IntOr, Ints, Letters, Name, Pair, Real, RealOr, Seed, Word, Words};

/// Every field, by path.
#[rustfmt::skip]
pub const TABLE: &[FieldDef] = &[
    derived("arch.canon_parameters", Cosmetic, "", "Parameters in the fills of slots."),
    derived("arch.flops_per_token", Cosmetic, "FLOP", "Forward, at arch.seq_len; a multiply-add counts two."),
    derived("arch.graph", Semantic, "", "Structural hash of the compute graph."),
    derived("arch.manifest", Semantic, "", "Digest of every parameter's path, shape, init rule and key."),
    derived("arch.non_embedding", Cosmetic, "", "Parameters without the token table and the output projection."),
    derived("arch.optimizer_bytes", Cosmetic, "bytes", "Parameters, gradients and both AdamW moments in f32."),
    derived("arch.parameters", Cosmetic, "", "All parameters."),
    derived("arch.saved_per_token", Cosmetic, "elements", "Kept for the backward pass, without recomputation."),
    derived("arch.seq_len", Cosmetic, "tokens", "The sequence length that costs are counted at."),
    derived("arch.short_conv", Cosmetic, "", "Parameters in the mixers' own short convolutions."),
    derived("arch.state", Cosmetic, "elements", "Recurrent state of one sequence after arch.seq_len tokens."),
    derived("arch.state_per_token", Cosmetic, "elements", "Of these, what the last token added."),
    derived("arch.train_flops_per_token", Cosmetic, "FLOP", "Forward and backward."),
    free("batch.micro_batches", Semantic, Int(1, 1 << 20), "Micro-batches of one step, summed by a fixed tree.").is("1").also(&["grad_acc_steps", "accumulate"]),
    free("batch.sequences", Semantic, Int(1, 1 << 20), "Sequences of one micro-batch.").also(&["batch_size", "size"]),
    derived("batch.tokens_per_step", Cosmetic, "tokens", "sequences x micro_batches x seq_len."),
    derived("budget.flops", Cosmetic, "FLOP", "Of the whole training, forward and backward."),
    free("budget.steps", Semantic, Int(1, COUNT), "Optimiser steps.").decides().also(&["max_steps", "iterations"]),
    free("budget.tokens", Semantic, Int(1, i64::MAX), "Tokens of the whole training; the step must divide it.").decides().unit("tokens"),
    free("checkpoint.every", Cosmetic, Int(0, COUNT), "Steps between checkpoints; 0 for the last step only.").is("100").unit("steps"),
    free("checkpoint.keep", Cosmetic, Int(2, 10_000), "Verified checkpoints that are kept.").is("2"),
    free("data.K", Semantic, Int(1, 499), "Depo: the most hops a question asks for.").only(TASK, DEPO).also(&["hops"]),
    free("data.L", Semantic, Int(1, 499), "Mano: the most operations of an expression.").only(TASK, MANO),
    free("data.M", Semantic, Int(1, 65_536), "Depo: questions of a sample; a cycle of fewer names asks one for each.").is("10").only(TASK, DEPO),
    free("data.N", Semantic, Int(1, 10_000_000), "Brevo: the most vertices. Capo: people. Depo: the longest cycle. Multihop: people of a group.").only(TASK, &["brevo", "capo", "depo", "multihop"]).also(&["n_max", "n"]),
    free("data.add_bos", Semantic, Bool, "A token before each document.").is("true").only(TASK, TEXT),
    free("data.add_eos", Semantic, Bool, "A token after each document.").is("true").only(TASK, TEXT),
    free("data.ans", Semantic, Int(1, 1 << 24), "Brevo: the published token before the answer.").is("9998").only(TASK, BREVO),
    free("data.ask", Semantic, Word(&["last", "last_quarter"], &[]), "Brevo: whose ancestors are asked for; the last vertex's as published, or one's of the last quarter as in the paper.").is("\"last\"").only(TASK, BREVO),
    free("data.bos", Semantic, Int(0, 1 << 24), "The published token before each sample.").is("9999").only(TASK, MARKED),
    free("data.config", Semantic, Word(CONFIGS, &[]), "Lano: the published grammar.").only(TASK, LANO),
    free("data.digest", Semantic, Digest, "Of the prepared documents; `canonc bind` writes it.").is("\"unbound\"").only(TASK, TEXT),
    free("data.eos", Semantic, Int(1, 1 << 24), "Brevo: the token after the answer; as published that before it again.").is("9998").only(TASK, BREVO),
    derived("data.epochs", Cosmetic, "", "Passes over the documents; known once they are bound."),
    free("data.held_out", Semantic, Real(Bounds::BelowOne), "Share of the documents kept for evaluation.").is("0.01").only(TASK, TEXT),
    free("data.held_out_seed", Semantic, Seed, "Which documents those are.").is("0").only(TASK, TEXT),
    free("data.ids", Semantic, Word(&["dense", "published"], &[]), "Token numbers: as published, or without the unused ones.").is("\"published\"").only(TASK, SYNTHETIC),
    free("data.k", Semantic, Int(1, 1000), "Multihop: groups of people, each as many hops from a year.").only(TASK, MULTIHOP),
    free("data.knowledge_augment", Semantic, Bool, "Mano: two tokens for each marker and operation.").is("true").only(TASK, MANO),
    free("data.leaves", Semantic, Word(&["ceil", "floor"], &[]), "Brevo: how the bound on parentless vertices is rounded; down as published, up in the paper.").is("\"floor\"").only(TASK, BREVO),
    free("data.lens", Semantic, Ints(1, 499), "Mano: operation counts in training.").from(up_to_l, "1 to `data.L`").only(TASK, MANO),
    free("data.loss_on", Semantic, Word(&["all", "answer"], &[]), "Which tokens are targets.").from(loss_on, "`\"answer\"` for brevo and depo, else `\"all\"`"),
    free("data.max_tlen", Semantic, Int(1, 64), "Depo: tokens of the longest name.").only(TASK, DEPO),
    free("data.min_tlen", Semantic, Int(1, 64), "Depo: tokens of the shortest name.").only(TASK, DEPO),
    free("data.mini_vocab", Semantic, Int(1, 4500), "Depo: letters of the name alphabet.").only(TASK, DEPO).also(&["V"]),
    free("data.multi", Semantic, Bool, "Brevo: names of 2 to 4 tokens (Brevo2), or one token a vertex (Brevo1).").is("false").only(TASK, BREVO),
    free("data.order", Semantic, Word(&["indexed", "published"], &[]), "Windows by number, or the published stream, which cannot be resharded.").is("\"indexed\"").only(TASK, SYNTHETIC),
    free("data.people_seed", Semantic, Int(0, i64::MAX), "Capo: of the people, who are the same whatever seeds.data is.").is("42").only(TASK, CAPO),
    free("data.permute", Semantic, Bool, "Capo: sentences in a drawn order, as the paper's bioS has them.").is("false").only(TASK, CAPO),
    free("data.pronoun", Semantic, Word(&["drawn", "parity"], &[]), "Capo: whether a person is he or she; by number as published, or drawn as in the paper.").is("\"parity\"").only(TASK, CAPO),
    free("data.qids", Semantic, Ints(1, 499), "Mano: the number that stands for each of lens.").from(as_lens, "`data.lens`").only(TASK, MANO),
    free("data.query", Semantic, Int(1, 1 << 24), "Brevo: the published token before the query.").is("9997").only(TASK, BREVO),
    free("data.reverse_md", Semantic, Bool, "Capo: the day before the month.").is("false").only(TASK, CAPO),
    free("data.separator", Semantic, Bool, "Depo: a token before each edge.").is("false").only(TASK, DEPO),
    free("data.seq_len", Semantic, Int(1, 1 << 24), "Inputs of one window.").unit("tokens").also(&["context", "length"]),
    free("data.source", Semantic, Name, "What people call the documents; once they are bound their digest counts instead.").only(TASK, TEXT),
    free("data.task", Semantic, Word(&["brevo", "capo", "depo", "lano", "mano", "multihop", "text"], &["babilong"]), "What is learnt."),
    derived("data.task_digest", Semantic, "", "Digest of a synthetic task: name, parameters, revision of its generator."),
    free("data.tokenizer", Semantic, Word(&["bytes"], &["sp", "tiktoken"]), "How text becomes tokens.").is("\"bytes\"").only(TASK, TEXT),
    free("data.tokens", Cosmetic, IntOr(1, i64::MAX, "unknown"), "Training tokens of one pass; `canonc bind` writes it.").is("\"unknown\"").only(TASK, TEXT),
    free("data.ttype", Semantic, Letters("asmd"), "Mano: addition, subtraction, multiplication, division; the last, which is not published, takes a prime modulus.").is("\"asm\"").only(TASK, MANO),
    free("data.value_mod", Semantic, Int(2, 4900), "Mano: the modulus.").is("23").only(TASK, MANO),
    derived("data.vocab", Cosmetic, "tokens", "The least vocabulary an arch needs for this data."),
    free("data.weights", Semantic, Ints(0, COUNT), "Share of each source of the prepared text; empty takes every document once a pass.").is("[]").only(TASK, TEXT),
    free("evaluation.every", Cosmetic, Int(0, COUNT), "Steps between evaluations; 0 for the last step only.").is("0").unit("steps"),
    free("evaluation.metrics", Measured, Words(MEASURES), "What is reported.").from(metrics, "what the task is measured by"),
    free("evaluation.mode", Measured, Word(&["test", "train"], &[]), "Sizes of evaluated samples: all at the largest, or drawn as in training.").is("\"test\"").only(TASK, SIZED),
    free("evaluation.samples", Measured, Int(1, 1 << 20), "Brevo: questions whose answers are generated at one evaluation. Lano: sentences that are, and as many whose law is compared.").is("64").only(TASK, WRITTEN),
    free("evaluation.windows", Measured, Int(1, 1 << 32), "Windows of one evaluation.").is("64").unit("windows"),
    free("log.every", Cosmetic, Int(1, COUNT), "Steps between lines of progress.").is("10").unit("steps"),
    free("loss.kind", Semantic, Word(&["cross_entropy"], &[]), "What is minimised.").is("\"cross_entropy\""),
    free("loss.nll_square", Semantic, Real(Bounds::AtLeastZero), "Coefficient of the squared token loss, which the release calls z_loss.").is("0"),
    free("loss.z_loss", Semantic, Real(Bounds::AtLeastZero), "Coefficient of the squared log partition function.").is("0"),
    free("optimizer.betas", Semantic, Pair(Bounds::BelowOne), "Decay of both moments.").is("[0.9, 0.95]"),
    free("optimizer.clip", Semantic, RealOr(Bounds::Positive, "none"), "The largest global gradient norm.").is("1"),
    free("optimizer.decay", Semantic, Word(&["all", "matrices"], &[]), "What weight decay acts on: everything, or matrices and tables only.").is("\"all\""),
    derived("optimizer.decayed", Semantic, "", "Digest of the parameters that decay acts on, where it is not all."),
    free("optimizer.eps", Semantic, Real(Bounds::Positive), "Added to the root of the second moment.").is("1e-8"),
    free("optimizer.kind", Semantic, Word(&["adamw"], &[]), "The update rule.").is("\"adamw\""),
    free("optimizer.lr", Semantic, Real(Bounds::Positive), "Base learning rate.").also(&["learning_rate"]),
    derived("optimizer.lr_wd_steps", Cosmetic, "", "lr x weight_decay x steps: how often decay replaces a weight."),
    free("optimizer.weight_decay", Semantic, Real(Bounds::AtLeastZero), "Decoupled weight decay.").also(&["wd", "decay"]),
    free("platform.blas", Platform, Word(&["any", "auto", "avx2-strict", "compatible"], &[]), "How the matrix library picks its code.").is("\"any\""),
    free("platform.cpu_capability", Platform, Word(&["any", "avx2", "avx512", "default"], &[]), "Instructions the CPU kernels may use.").is("\"any\""),
    free("platform.device", Platform, Word(&["cpu", "cuda"], &[]), "Where it runs.").is("\"cpu\""),
    free("platform.fuse", Platform, Bool, "Kernels that do several steps at once.").is("true"),
    free("platform.kernels.canon", Platform, Word(&["fused", "reference"], &[]), "Which Canon convolution.").is("\"fused\""),
    free("platform.recompute", Platform, Word(&["layers", "nothing"], &[]), "What the backward pass makes again instead of keeping.").is("\"nothing\""),
    free("platform.threads", Platform, IntOr(1, 4096, "any"), "CPU threads.").is("\"any\""),
    free("precision.policy", Semantic, Word(&["f32"], &["bf16", "fp16", "f16"]), "How wide numbers are between islands.").is("\"f32\""),
    free("schedule.cycle", Semantic, Real(Bounds::PositiveShare), "A cycle's part of the run.").is("1").only(KIND, &["cosine", "wsd"]),
    free("schedule.decay_fraction", Semantic, Real(Bounds::Share), "Part of a cycle that decays.").is("0.1").only(KIND, &["wsd"]),
    free("schedule.exp_factor", Semantic, Real(Bounds::Positive), "Exponent of warmup / step.").is("0.5").only(KIND, &["inv_sqrt"]),
    free(KIND, Semantic, Word(&["constant", "cosine", "inv_sqrt", "linear", "wsd"], &[]), "How the learning rate goes over the run."),
    free("schedule.lr_min_ratio", Semantic, Real(Bounds::Share), "The last learning rate as a share of the first.").is("0.1").only(KIND, WARMED).also(&["min_lr_ratio"]),
    free("schedule.theta", Semantic, Real(Bounds::Positive), "Bends the cosine's progress.").is("1").only(KIND, &["cosine"]),
    free("schedule.warmup", Semantic, Int(0, COUNT), "Steps from 0 to the base learning rate.").unit("steps").only(KIND, WARMED).also(&["warmup_steps"]),
    derived("schedule.warmup_share", Cosmetic, "", "warmup / steps."),
    free("seeds.data", Semantic, Seed, "Of the order and content of training windows."),
    free("seeds.eval", Measured, Seed, "Of the windows that are evaluated.").is("0"),
    free("seeds.init", Semantic, Seed, "Of the initial weights."),
];

/// The revision of each synthetic generator: raised when the same seed gives other samples, or the same
/// samples are packed into other windows.
pub const GENERATORS: [(&str, i64); 6] =
    [("brevo", 1), ("capo", 1), ("depo", 1), ("lano", 1), ("mano", 1), ("multihop", 1)];

/// Something that decides a result, that no field says and that is neither a primitive nor a generator,
/// which have revisions of their own.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub name: &'static str,
    pub revision: i64,
    /// What it covers.
    pub doc: &'static str,
    only: Option<(&'static str, &'static [&'static str])>,
}

/// THE list of rules. Raise a revision by one in the change that lets the same lock give another number
/// in exact arithmetic: another draw, formula, order or count. A rewrite that only rounds otherwise, a new
/// field (it has its own neutral value) and a new choice of an old field (another word) raise nothing. A
/// revision is in the id, as `revision.NAME`, from 2 on: at 1, the neutral value, it is not written, so
/// that ids older than this list keep their meaning. A lock of another revision than the one here is
/// refused by name.
pub const RULES: &[Rule] = &[
    rule("init", "How a parameter's init rule, key and seed become its first value."),
    rule("loss", "Which targets count, what is summed over them, and what the sum is divided by."),
    rule("schedule", "The learning rate at each step, for every kind."),
    Rule {
        only: Some((TASK, TEXT)),
        ..rule(
            "text",
            "The byte tokenizer, which documents are held out, their order, and how windows are numbered.",
        )
    },
    rule("update", "The tree that sums gradients, the norm and the clip, AdamW, and its decay."),
];

const fn rule(name: &'static str, doc: &'static str) -> Rule {
    Rule { name, revision: 1, doc, only: None }
}

impl Rule {
    /// Whether it decides anything beside these values.
    pub fn applies(&self, fields: &Fields) -> bool {
        holds(self.only, fields)
    }

    /// What its revision is called in the id.
    pub fn path(&self) -> String {
        format!("revision.{}", self.name)
    }
}

/// Whether a field holds one of the words that something depends on.
fn holds(only: Option<(&str, &[&str])>, fields: &Fields) -> bool {
    only.is_none_or(|(path, words)| {
        matches!(fields.get(path), Some(FieldValue::Text(word)) if words.contains(&word.as_str()))
    })
}

/// The row of a path.
pub fn find(path: &str) -> Option<&'static FieldDef> {
    TABLE.binary_search_by(|def| def.path.cmp(path)).ok().and_then(|i| TABLE.get(i))
}

/// The paths that recipes may write, in order.
pub fn writable() -> impl Iterator<Item = &'static FieldDef> {
    TABLE.iter().filter(|def| def.origin != Origin::Derived)
}

/// The field a wrong path was probably meant to be; never the path itself.
pub fn suggest(path: &str) -> Option<&'static str> {
    nearest(path).filter(|near| *near != path)
}

fn nearest(path: &str) -> Option<&'static str> {
    let (section, last) = path.rsplit_once('.').unwrap_or(("", path));
    let renamed = writable().find(|def| def.also.contains(&last) && def.section() == section);
    if let Some(def) = renamed.or_else(|| writable().find(|def| def.also.contains(&last))) {
        return Some(def.path);
    }
    // The same word in another section, then a word like it in this one, then a path like it.
    let named = |def: &&FieldDef| def.path.rsplit('.').next() == Some(last);
    if let Some(def) = writable().find(named) {
        return Some(def.path);
    }
    let own = writable().filter(|def| def.section() == section);
    let near = dsl::suggest(last, own.filter_map(|def| def.path.rsplit('.').next()));
    if let Some(def) = near.and_then(|near| find(&format!("{section}.{near}"))) {
        return Some(def.path);
    }
    // Whole paths are alike by their sections alone, so only where that is wrong too.
    let known = writable().any(|def| def.section() == section);
    dsl::suggest(path, writable().map(|def| def.path)).filter(|_| !known)
}

/// A value that follows from what is written, or the default; `None` where it has to be written.
pub fn default_of(def: &FieldDef, fields: &Fields) -> Option<FieldValue> {
    match def.default {
        Default::Required => None,
        Default::Is(text) => {
            let parsed = toml::de::DeValue::parse(text).ok()?;
            def.kind.read(parsed.get_ref()).ok()
        }
        Default::From(rule, _) => rule(fields),
    }
}

fn word<'a>(fields: &'a Fields, path: &str) -> Option<&'a str> {
    match fields.get(path) {
        Some(FieldValue::Text(word)) => Some(word),
        Some(
            FieldValue::Int(_)
            | FieldValue::Big(_)
            | FieldValue::Real(_)
            | FieldValue::Bool(_)
            | FieldValue::List(_),
        )
        | None => None,
    }
}

/// Answers where the task labels them, else everything: as published.
fn loss_on(fields: &Fields) -> Option<FieldValue> {
    let labelled = ["brevo", "depo"].contains(&word(fields, "data.task")?);
    let on = if labelled { "answer" } else { "all" };
    Some(FieldValue::text(on))
}

/// What the task is measured by; of text, which asks nothing, and of Capo, whose values the bits are of, no answers.
fn metrics(fields: &Fields) -> Option<FieldValue> {
    let metrics: &[&str] = match word(fields, "data.task")? {
        "capo" => &["bits", "loss"],
        "lano" => &["kl", "loss", "validity"],
        "text" => &["loss", "token_accuracy"],
        _ => &["answer_accuracy", "loss", "token_accuracy"],
    };
    Some(FieldValue::List(metrics.iter().map(|m| FieldValue::text(*m)).collect()))
}

fn up_to_l(fields: &Fields) -> Option<FieldValue> {
    match fields.get("data.L") {
        Some(FieldValue::Int(most)) => {
            Some(FieldValue::List((1..=*most.min(&499)).map(FieldValue::Int).collect()))
        }
        Some(
            FieldValue::Text(_)
            | FieldValue::Big(_)
            | FieldValue::Real(_)
            | FieldValue::Bool(_)
            | FieldValue::List(_),
        )
        | None => None,
    }
}

fn as_lens(fields: &Fields) -> Option<FieldValue> {
    fields.get("data.lens").cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_sound() {
        for pair in TABLE.windows(2) {
            assert!(pair[0].path < pair[1].path, "{} before {}", pair[0].path, pair[1].path);
            // One path inside another could not both be TOML keys.
            assert!(!pair[1].path.starts_with(&format!("{}.", pair[0].path)));
        }
        for def in TABLE {
            assert!(find(def.path).is_some_and(|found| found.path == def.path));
            assert!(!def.doc.is_empty() && def.doc.ends_with('.'), "{}", def.path);
            assert!(def.since >= 1 && (def.since == 1) == def.neutral.is_empty(), "{}", def.path);
            if let Some((path, words)) = def.only {
                let Kind::Word(known, _) = find(path).unwrap().kind else { panic!("{path}") };
                assert!(words.iter().all(|w| known.contains(w)), "{}", def.path);
            }
            if let Default::Is(_) = def.default {
                assert!(default_of(def, &Fields::new()).is_some(), "default of {}", def.path);
            }
        }
    }

    #[test]
    fn metrics_and_grammars_are_those_of_the_table() {
        assert_eq!(METRICS.map(|(name, _)| name), MEASURES);
        assert_eq!(GRAMMARS.map(|(name, _)| name), CONFIGS);
        let Kind::Word(tasks, _) = find(TASK).unwrap().kind else { panic!("{TASK}") };
        for (metric, of) in METRICS {
            assert!(of.unwrap_or_default().iter().all(|task| tasks.contains(task)), "{metric}");
        }
        for task in tasks {
            let fields = Fields::from([(TASK.to_owned(), FieldValue::text(*task))]);
            let Some(FieldValue::List(metrics)) = metrics(&fields) else { panic!("{task}") };
            for metric in metrics {
                let (_, of) =
                    METRICS.into_iter().find(|(name, _)| *name == metric.plain()).unwrap();
                assert!(of.is_none_or(|of| of.contains(task)), "{task} {metric}");
            }
        }
    }

    #[test]
    fn the_rules_are_sorted_and_no_fields() {
        for pair in RULES.windows(2) {
            assert!(pair[0].name < pair[1].name);
        }
        for rule in RULES {
            assert!(rule.revision >= 1 && rule.doc.ends_with('.'), "{}", rule.name);
            assert!(find(&rule.path()).is_none(), "{}", rule.name);
        }
    }

    #[test]
    fn wrong_paths_are_understood() {
        for (wrong, meant) in [
            ("optimizer.learning_rate", "optimizer.lr"),
            ("optimizer.wieght_decay", "optimizer.weight_decay"),
            ("batch.batch_size", "batch.sequences"),
            ("data.n_max", "data.N"),
            ("warmup", "schedule.warmup"),
            ("optimizer.warmup", "schedule.warmup"),
            ("schedule.min_lr_ratio", "schedule.lr_min_ratio"),
        ] {
            assert_eq!(suggest(wrong), Some(meant), "{wrong}");
        }
        assert_eq!(suggest("xyzzy"), None);
        for def in TABLE {
            assert_ne!(suggest(def.path), Some(def.path));
        }
    }

    #[test]
    fn a_younger_field_enters_only_when_it_says_something() {
        let def = FieldDef { since: 2, neutral: "0", ..*find("loss.z_loss").unwrap() };
        assert!(!def.enters(&FieldValue::Real(dsl::Decimal::ZERO)));
        assert!(def.enters(&FieldValue::Real(dsl::Decimal::ONE)));
    }
}
