//! A model with the class of Hugging Face that it belongs to: what a configuration describes, and what an arch is.

use compiler::graph::Param;
use compiler::program::Compiled;
use dsl::Problem;

use super::class::{CLASSES, Class};
use super::init::Init;
use super::lay::{self, Target, TensorEntry};
use super::model::{Mixer, Model, RopeLayout};
use super::names::{self, GatedNorm, Layout};
use super::{arch, decoder};

/// A model of one of the classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// Its class.
    pub class: &'static Class,
    /// The model.
    pub model: Model,
    /// The kernel of its gated norms, which names their parameters.
    pub norm: GatedNorm,
    /// Whether q and k in the files are for the other RoPE layout.
    pub turned: bool,
}

/// Changed values of an import, for its list of origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Name of the tensor in the file.
    pub name: String,
    /// The computation that makes our values of its values.
    pub how: &'static str,
}

impl Described {
    /// A model of a released family.
    pub fn of_released(model: Model, norm: GatedNorm) -> Described {
        Described { class: Class::of_released(&model), model, norm, turned: false }
    }

    /// The model that an arch is, if it is of another class of `transformers`. The graph alone proposes a class.
    pub(crate) fn recognised(compiled: &Compiled) -> Option<Described> {
        CLASSES.iter().find_map(|class| {
            let model = decoder::model(compiled, class.qk_norm)?;
            let attention = model.attention()?;
            let turned = attention.layout == RopeLayout::Interleaved;
            let described = Described { class, model, norm: GatedNorm::Fused, turned };
            let is_it = class.has_keys_for(&described.model)
                // A proposal that does not compile is not this arch, either.
                && matches!(described.difference(compiled), Ok(None));
            is_it.then_some(described)
        })
    }

    /// Whether the model is of a released family: Llama's class has others, too.
    pub fn is_released(&self) -> bool {
        self.class.released && !self.model.has_biases_or_scaling()
    }

    /// The arch in the `.canon` language, with a doc of one line.
    pub fn text(&self, name: &str, doc: &str) -> String {
        let text = self.model.text(name, doc);
        if self.is_released() {
            return text;
        }
        let file = dsl::Sources::new().add("imported", &text);
        // If it did not parse, compiling it would report the mistake.
        dsl::format_source(file, &text).unwrap_or(text)
    }

    /// Checks that an arch is this model, apart from its initial distributions; if not, the first difference: a path,
    /// our value, and the value of these keys.
    pub(crate) fn difference(
        &self,
        ours: &Compiled,
    ) -> Result<Option<(String, String, String)>, Problem> {
        let same = Model { init: Init::from_compiled(ours), ..self.model.clone() };
        let theirs = arch::compile(&ours.name, &same.text(&ours.name, ""))?;
        if arch::is_same(ours, &theirs) {
            return Ok(None);
        }
        let unknown =
            || ("its definitions".to_owned(), "others".to_owned(), "those of std".to_owned());
        Ok(Some(arch::differing(&ours.fields, &theirs.fields).unwrap_or_else(unknown)))
    }

    /// The names of its tensors in a program.
    pub(crate) fn names(&self, target: Target) -> &'static Layout {
        match (&self.model.mixer, target) {
            (Mixer::Attention(_), Target::Lingua) => &names::LINGUA_LLAMA,
            (_, Target::HuggingFace | Target::Lingua) => self.class.names,
        }
    }

    /// Every tensor of this model in a program.
    pub fn entries(&self, target: Target, params: &[Param]) -> Vec<TensorEntry> {
        let prefixed = target == Target::Lingua && self.model.attention().is_none();
        let mut entries =
            lay::entries(&self.model, self.names(target), self.norm, prefixed, params);
        if let (true, Some(attention)) = (self.turned, self.model.attention()) {
            lay::turn(&mut entries, attention, params);
        }
        entries
    }

    /// The frequencies of RoPE, which some files have; `None` for a model without it.
    pub(crate) fn rates(&self) -> Option<Vec<f64>> {
        let attention = self.model.attention()?;
        Some(attention.options.scaling.rates(attention.theta.to_f64(), attention.rope_dims))
    }

    /// Whether only the plain implementation of attention computes this model in `transformers`: the usual one leaves
    /// out the bound of scores.
    pub(crate) fn needs_eager(&self) -> bool {
        self.model.attention().is_some_and(|attention| attention.options.softcap.is_some())
    }

    /// The tensors with other values than the file's.
    pub(crate) fn changed(&self, params: &[Param]) -> Vec<Changed> {
        let how = "1 + weight, computed in f32, since the norms of this class multiply by that";
        let entries = self.entries(Target::HuggingFace, params).into_iter();
        let changed = entries.filter(|entry| entry.plus_one);
        changed.map(|entry| Changed { name: entry.theirs, how }).collect()
    }
}
