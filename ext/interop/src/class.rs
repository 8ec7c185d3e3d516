//! The classes of Hugging Face that are read and written: one row each.

use super::model::{BlockNorms, Family, Model, QkNorm};
use super::names::{self, Layout};

/// A class of `transformers`, or of published code for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Class {
    /// `model_type` of its configuration.
    pub model_type: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The kind of its mixer, which decides how its keys are read.
    pub(crate) family: Family,
    /// Its code, unless `transformers` has it.
    pub(crate) code: Option<Code>,
    /// Whether the release has models of this class.
    pub(crate) released: bool,
    /// Values that the class takes for absent keys, if not those of most classes.
    pub(crate) absent: &'static [(&'static str, &'static str)],
    /// The key of the MLP's activation, and its value if absent.
    pub(crate) activation: (&'static str, &'static str),
    pub(crate) norms: BlockNorms,
    pub(crate) qk_norm: QkNorm,
    /// Whether `attention_bias` adds biases.
    pub(crate) biases: bool,
    pub(crate) windows: Windows,
    /// Whether token vectors are multiplied by sqrt(dim), and scores and logits have bounds and a scale of their own.
    pub(crate) bounded: bool,
    /// The names of its tensors.
    pub(crate) names: &'static Layout,
}

/// The published code of a class.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Code {
    /// Stem of the names of its files.
    pub(crate) file: &'static str,
    /// The folder of the published repository that has them.
    pub(crate) folder: &'static str,
    /// Packages that it needs in addition to `torch` and `transformers`, as arguments of pip.
    pub(crate) packages: &'static str,
}

/// Which layers have the window of `sliding_window`, unless `layer_types` says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    Never,
    Always,
    /// Layers 0, 2, 4, …
    Even,
    /// If `use_sliding_window`, layers from `max_window_layers` on.
    Upper,
}

const LLAMA: Class = Class {
    model_type: "llama",
    name: "LlamaForCausalLM",
    family: Family::Llama,
    code: None,
    released: true,
    absent: &[],
    activation: ("hidden_act", "silu"),
    norms: BlockNorms::Before,
    qk_norm: QkNorm::None,
    biases: true,
    windows: Windows::Never,
    bounded: false,
    names: &names::LLAMA,
};

/// Their order is that in which an arch is compared with them.
pub(crate) static CLASSES: [Class; 9] = [
    LLAMA,
    Class {
        model_type: "LlamaCanon",
        name: "LlamaCanonForCausalLM",
        code: Some(Code { file: "llama_canon", folder: "huggingface", packages: " einops==0.8.0" }),
        ..LLAMA
    },
    Class {
        model_type: "GLACanon",
        name: "GLACanonForCausalLM",
        family: Family::Gla5,
        code: Some(Code {
            file: "gla_canon",
            folder: "lingua_modified/huggingface",
            packages: " einops==0.8.0 flash-linear-attention==0.3.0",
        }),
        names: &names::FLASH_LINEAR,
        ..LLAMA
    },
    Class {
        model_type: "GatedDeltaNetCanon",
        name: "GatedDeltaNetCanonForCausalLM",
        family: Family::Gdn2,
        code: Some(Code {
            file: "gated_deltanet_canon",
            folder: "lingua_modified/huggingface",
            packages: " einops==0.8.0 flash-linear-attention==0.3.0",
        }),
        names: &names::FLASH_LINEAR,
        ..LLAMA
    },
    Class {
        model_type: "Mamba2Canon",
        name: "Mamba2CanonForCausalLM",
        family: Family::Mamba2,
        code: Some(Code {
            file: "mamba2_canon",
            folder: "lingua_modified/huggingface",
            packages: " einops==0.8.0 setuptools wheel && .venv/bin/pip install --no-build-isolation causal-conv1d==1.5.0.post8 mamba-ssm==2.2.4",
        }),
        names: &names::MAMBA2,
        ..LLAMA
    },
    Class {
        model_type: "mistral",
        name: "MistralForCausalLM",
        released: false,
        absent: &[("num_key_value_heads", "8"), ("sliding_window", "4096")],
        biases: false,
        windows: Windows::Always,
        ..LLAMA
    },
    Class {
        model_type: "qwen3",
        name: "Qwen3ForCausalLM",
        released: false,
        absent: &[
            ("num_key_value_heads", "32"),
            ("head_dim", "128"),
            ("sliding_window", "4096"),
            ("max_window_layers", "28"),
        ],
        qk_norm: QkNorm::PerHead,
        windows: Windows::Upper,
        ..LLAMA
    },
    Class {
        model_type: "gemma2",
        name: "Gemma2ForCausalLM",
        released: false,
        absent: &[
            ("num_key_value_heads", "4"),
            ("head_dim", "256"),
            ("sliding_window", "4096"),
            ("query_pre_attn_scalar", "256"),
            ("attn_logit_softcapping", "50"),
            ("final_logit_softcapping", "30"),
            ("tie_word_embeddings", "true"),
        ],
        activation: ("hidden_activation", "gelu_pytorch_tanh"),
        norms: BlockNorms::Around,
        windows: Windows::Even,
        bounded: true,
        names: &names::GEMMA2,
        ..LLAMA
    },
    Class {
        model_type: "olmo2",
        name: "Olmo2ForCausalLM",
        released: false,
        absent: &[("rms_norm_eps", "1e-5")],
        norms: BlockNorms::After,
        qk_norm: QkNorm::Joint,
        biases: false,
        names: &names::OLMO2,
        ..LLAMA
    },
];

/// The names of the classes without `ForCausalLM`, separated by commas: all, or those that `transformers` has.
pub fn class_names(of_transformers: bool) -> String {
    let classes = CLASSES.iter().filter(|class| !of_transformers || class.code.is_none());
    let names: Vec<&str> =
        classes.map(|class| class.name.trim_end_matches("ForCausalLM")).collect();
    names.join(", ")
}

impl Class {
    /// The class of the release that has this model, which is of one of its families.
    pub fn of_released(model: &Model) -> &'static Class {
        let has = |class: &&Class| {
            class.family == model.family() && (class.code.is_some() || model.is_plain())
        };
        CLASSES.iter().find(has).unwrap_or(&CLASSES[0])
    }

    /// Whether the class has keys for everything in a decoder that is not one of the release's.
    pub(crate) fn has_keys_for(&self, model: &Model) -> bool {
        let Some(attention) = model.attention() else { return false };
        let options = &model.options;
        let bounds = [attention.options.softcap, options.logit_cap].iter().any(Option::is_some)
            || attention.options.score.is_some();
        let by_rule = |(window, first)| {
            self.windows.of_layers(model.layers, window, first) == options.windows
        };
        self.code.is_none()
            && (!self.released || model.has_biases_or_scaling())
            && self.norms == options.norms
            && self.qk_norm == attention.qk_norm
            && attention.rope_dims == attention.head_dim
            && self.bounded == options.scaled_embedding
            && (self.biases || !attention.options.bias)
            && (self.bounded || !bounds)
            // The mask of a window is always built by Gemma 2's class.
            && (self.windows != Windows::Even || !options.windows.is_empty())
            && model.window().is_some_and(by_rule)
    }
}

impl Windows {
    /// The window of each layer; `first` is the first layer that may have one. Empty if none has.
    pub(crate) fn of_layers(
        self,
        layers: i64,
        window: Option<i64>,
        first: i64,
    ) -> Vec<Option<i64>> {
        let has = |layer: i64| match self {
            Windows::Never => false,
            Windows::Always => true,
            Windows::Even => layer % 2 == 0,
            Windows::Upper => layer >= first,
        };
        let windows: Vec<_> = (0..layers).map(|layer| window.filter(|_| has(layer))).collect();
        if windows.iter().all(Option::is_none) { Vec::new() } else { windows }
    }
}

/// The tables of names, each once: those of the classes, and that of Lingua's Llama.
pub(crate) fn layouts() -> Vec<&'static Layout> {
    let mut layouts = vec![&names::LLAMA, &names::LINGUA_LLAMA];
    for class in &CLASSES {
        if !layouts.iter().any(|known| std::ptr::eq(*known, class.names)) {
            layouts.push(class.names);
        }
    }
    layouts
}
