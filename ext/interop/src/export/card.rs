//! The model card of an export.
//!
//! In: the arch, its lock and the origin of its weights, as far as known. Out: `README.md`. Must stay true: the card says
//! nothing that the inputs do not show; its commands work word by word, which `make test-transformers` tries.

use std::path::Path;

use lab::experiment::Experiment;
use lab::field::FieldValue;
use minijinja::context;

use super::super::hf::{self, Described, Stock};
use super::super::model::{Family, Mixer, Model};
use super::super::tokenizer::Tokenizer;
use super::super::{ForeignError, torch};
use super::{Plan, Request, To};

impl Plan<'_> {
    /// Writes the model card. `known` is `None` if the arch is a model of no known class.
    pub(super) fn card(
        &self,
        folder: &Path,
        known: Option<&Described>,
    ) -> Result<(), ForeignError> {
        let model = known.and_then(Described::model);
        let stock = known.and_then(Described::stock);
        let Request { compiled, experiment, to, .. } = self.request;
        let derived = |path: &str| {
            experiment.and_then(|e| e.value(path)).map_or(String::new(), FieldValue::plain)
        };
        // The code of any model that `transformers` does not have is exported with it.
        let in_transformers = stock.is_some() || model.is_some_and(Model::is_plain_llama);
        let own_code = *to == To::HuggingFace && !in_transformers;
        let published = model.filter(|_| !own_code);
        let elements: i64 =
            compiled.graph.params().iter().map(|p| p.shape.iter().product::<i64>()).sum();
        let origin = self.request.origin;
        let part = origin.zip(*experiment).and_then(|(origin, experiment)| {
            origin.step.filter(|step| *step < experiment.budget.steps)
        });
        let text = self.render(
            "README.md",
            context! {
                name => self.name(),
                arch => compiled.name,
                docs => compiled.docs.join(" "),
                text => match known {
                    Some(known) => known.text(&compiled.name, compiled.docs.join(" ").trim()),
                    None => compiled.text.clone(),
                },
                parameters => grouped(elements),
                graph => compiled.identity.graph.to_string(),
                manifest => compiled.identity.manifest.to_string(),
                class => match (published, stock) {
                    (Some(model), _) => hf::class(model),
                    (None, Some(stock)) => stock.family.class,
                    (None, None) if own_code => torch::CLASSES.model,
                    (None, None) => "",
                },
                eager => *to == To::HuggingFace && stock.is_some_and(Stock::needs_eager),
                less_one => *to == To::HuggingFace && stock.is_some_and(Stock::less_one),
                code => published.and_then(hf::published).unwrap_or_default(),
                published => hf::PUBLISHED_CODE,
                published_folder => published.map(hf::code_folder).unwrap_or_default(),
                packages => published.map(packages).unwrap_or_default(),
                gpu => published.is_some_and(|model| model.family() != Family::Llama),
                vocab => compiled.graph.vocab,
                folder => matches!(to, To::HuggingFace | To::Release),
                own_code,
                tokenizer => self.tokenizer().is_some(),
                begins => self.tokenizer().is_some_and(Tokenizer::begins_with_bos),
                no_tokenizer => match self.request.tokenizer {
                    Err(why) => why,
                    Ok(_) => "Its tokenizer is not in this folder.",
                },
                known => known.is_some(),
                canon => model.map(canon_slots).unwrap_or_default(),
                rope => match (model, stock) {
                    (Some(model), _) => rope(model),
                    (None, Some(_)) => "the whole head".to_owned(),
                    (None, None) => String::new(),
                },
                id => experiment.map_or(String::new(), |e| e.id().to_string()),
                task => derived("data.task"),
                source => derived("data.source"),
                tokens => experiment.map_or(String::new(), |e| grouped(e.budget.tokens as i64)),
                steps => experiment.map_or(String::new(), |e| grouped(e.budget.steps as i64)),
                per_step => experiment.map_or(String::new(), |e| grouped(e.batch.tokens_per_step as i64)),
                seq_len => self.seq_len,
                lr => derived("optimizer.lr"),
                weight_decay => derived("optimizer.weight_decay"),
                lr_wd_steps => derived("optimizer.lr_wd_steps"),
                schedule => derived("schedule.kind"),
                open => experiment.map_or(Vec::new(), Experiment::open_inputs),
                weights => self.request.origin.map_or("", |origin| origin.what),
                // Figures of a complete training belong to weights with all its steps.
                part => part.is_some(),
                step => part.map_or(String::new(), |step| grouped(step as i64)),
                seen => part.map_or(String::new(), |step| {
                    let each = experiment.map_or(0, |e| e.batch.tokens_per_step);
                    grouped((step as i64).saturating_mul(each as i64))
                }),
                unknown => experiment.is_some() && origin.is_some_and(|origin| origin.step.is_none()),
                dtype => self.request.dtype.torch(),
            },
        )?;
        self.put(folder, "README.md", &text)
    }
}

/// Packages that the published code needs in addition to `torch` and `transformers`, as pip arguments.
fn packages(model: &Model) -> &'static str {
    match model.family() {
        Family::Llama if model.is_plain_llama() => "",
        Family::Llama => " einops==0.8.0",
        Family::Gla5 | Family::Gdn2 => " einops==0.8.0 flash-linear-attention==0.3.0",
        Family::Mamba2 => {
            " einops==0.8.0 setuptools wheel && .venv/bin/pip install --no-build-isolation causal-conv1d==1.5.0.post8 mamba-ssm==2.2.4"
        }
    }
}

/// The slots with a Canon layer: `A, B`.
fn canon_slots(model: &Model) -> String {
    model.canon.slots.iter().map(char::to_string).collect::<Vec<_>>().join(", ")
}

/// A description of RoPE for the model card.
fn rope(model: &Model) -> String {
    match &model.mixer {
        Mixer::Attention(a) if a.rope_dims == a.head_dim => "the whole head".to_owned(),
        Mixer::Attention(a) => format!("{} of the {} channels of a head", a.rope_dims, a.head_dim),
        Mixer::Gla5 { .. } | Mixer::Gdn2 { .. } | Mixer::Mamba2 { .. } => String::new(),
    }
}

/// `1,366,460,416`
fn grouped(n: i64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
