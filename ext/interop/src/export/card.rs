//! The model card of an export. It says nothing that the inputs do not show; `make test-transformers` tries its commands.

use std::path::Path;

use dsl::Problem;
use lab::experiment::{Experiment, Init, Missing};
use lab::field::FieldValue;
use minijinja::{Value, context};

use super::super::described::Described;
use super::super::hf::PUBLISHED_CODE;
use super::super::lay::Target;
use super::super::model::{Family, Model};
use super::super::tokenizer::Tokenizer;
use super::super::torch;
use super::{Plan, Request, To};

impl Plan<'_> {
    /// Writes the model card. `known` is `None` if the arch is a model of no known class.
    pub(super) fn card(&self, folder: &Path, known: Option<&Described>) -> Result<(), Problem> {
        let text = self.render(
            "README.md",
            context! { ..self.model_facts(known), ..self.loading_facts(known), ..self.training_facts() },
        )?;
        self.put(folder, "README.md", &text)
    }

    /// What the arch is.
    fn model_facts(&self, known: Option<&Described>) -> Value {
        let compiled = self.request.compiled;
        let model = known.map(|known| &known.model);
        let elements: i64 =
            compiled.graph.params().iter().map(|p| p.shape.iter().product::<i64>()).sum();
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
            vocab => compiled.graph.vocab,
            known => known.is_some(),
            canon => model.map(canon_slots).unwrap_or_default(),
            rope => model.map_or(String::new(), rope),
        }
    }

    /// How other programs load the folder.
    fn loading_facts(&self, known: Option<&Described>) -> Value {
        let to = self.request.to;
        // The code of any model that `transformers` does not have is exported with it.
        let class = known.map(|known| known.class);
        let in_transformers = class.is_some_and(|class| class.code.is_none());
        let own_code = to == To::HuggingFace && !in_transformers;
        let class = class.filter(|_| !own_code);
        let code = class.and_then(|class| class.code.as_ref());
        let in_class = known.filter(|_| to == To::HuggingFace);
        context! {
            class => match class {
                Some(class) => class.name,
                None if own_code => torch::CLASSES.model,
                None => "",
            },
            eager => in_class.is_some_and(Described::needs_eager),
            less_one => in_class.is_some_and(|known| known.names(Target::HuggingFace).plus_one),
            code => code.map_or("", |code| code.file),
            published => PUBLISHED_CODE,
            published_folder => code.map_or("", |code| code.folder),
            packages => code.map_or("", |code| code.packages),
            gpu => class.is_some_and(|class| class.family != Family::Llama),
            folder => matches!(to, To::HuggingFace | To::Release),
            own_code,
            tokenizer => self.tokenizer().is_some(),
            begins => self.tokenizer().is_some_and(Tokenizer::begins_with_bos),
            no_tokenizer => match self.request.tokenizer {
                Err(reason) => reason,
                Ok(_) => "Its tokenizer is not in this folder.",
            },
            dtype => self.request.dtype.torch(),
        }
    }

    /// How the weights were trained, as far as known.
    fn training_facts(&self) -> Value {
        let Request { experiment, origin, .. } = self.request;
        let derived = |path: &str| {
            experiment.and_then(|e| e.value(path)).map_or(String::new(), FieldValue::plain)
        };
        let part = origin.zip(*experiment).and_then(|(origin, experiment)| {
            origin.step.filter(|step| *step < experiment.budget.steps)
        });
        context! {
            id => experiment.map_or(String::new(), |e| e.id().to_string()),
            task => derived("data.task"),
            source => derived("data.source"),
            initial => experiment.map_or(String::new(), initial),
            tokens => experiment.map_or(String::new(), |e| grouped(e.budget.tokens as i64)),
            steps => experiment.map_or(String::new(), |e| grouped(e.budget.steps as i64)),
            per_step => experiment.map_or(String::new(), |e| grouped(e.batch.tokens_per_step as i64)),
            seq_len => self.seq_len,
            lr => derived("optimizer.lr"),
            weight_decay => derived("optimizer.weight_decay"),
            lr_wd_steps => derived("optimizer.lr_wd_steps"),
            schedule => derived("schedule.kind"),
            open => experiment.map_or(Vec::new(), Experiment::open_inputs),
            weights => origin.map_or("", |origin| origin.what),
            // Figures of a complete training belong to weights with all its steps.
            part => part.is_some(),
            step => part.map_or(String::new(), |step| grouped(step as i64)),
            seen => part.map_or(String::new(), |step| {
                let each = experiment.map_or(0, |e| e.batch.tokens_per_step);
                grouped((step as i64).saturating_mul(each as i64))
            }),
            unknown => experiment.is_some() && origin.is_some_and(|origin| origin.step.is_none()),
        }
    }
}

/// The weights that training began from, if the lock names some.
fn initial(experiment: &Experiment) -> String {
    let Init::Weights { name, digest, missing } = &experiment.init else { return String::new() };
    let digest = digest.map_or(String::new(), |digest| format!(", tensors `{digest}`"));
    let drawn = match missing {
        Missing::Drawn => "; other parameters were drawn",
        Missing::Refused => "",
    };
    format!("the weights {name}{digest}{drawn}")
}

/// The slots with a Canon layer: `A, B`.
fn canon_slots(model: &Model) -> String {
    model.canon.slots.iter().map(char::to_string).collect::<Vec<_>>().join(", ")
}

/// A description of RoPE for the model card.
fn rope(model: &Model) -> String {
    match model.attention() {
        Some(a) if a.rope_dims == a.head_dim => "the whole head".to_owned(),
        Some(a) => format!("{} of the {} channels of a head", a.rope_dims, a.head_dim),
        None => String::new(),
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
