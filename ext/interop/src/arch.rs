//! Compiles the text of an arch, and reads a compiled arch as a model of a released family.
//!
//! An arch counts as a model only if the model, printed and compiled again, has the same graph and manifest, so no part
//! of an arch is lost. Fields of std's definitions propose a model; if there are none, a Llama's graph does.

use std::collections::BTreeMap;

use compiler::elaborate::Field;
use compiler::program::{Compiled, Program, Std};
use dsl::{Decimal, Problem};

use super::decoder;
use super::init::Init;
use super::model::{
    Attention, AttentionOptions, Canon, Mixer, Model, ModelOptions, QkNorm, RopeLayout,
};

/// File name of an imported arch while it is compiled.
const FILE: &str = "imported.canon";

/// Compiles an arch from the text of one file.
pub fn compile(name: &str, text: &str) -> Result<Compiled, Problem> {
    let program = Program::new([(FILE.to_owned(), text.to_owned())], Std::Embedded);
    let (compiled, diagnostics) = program.compile(FILE, name);
    let error = program.diagnostics.iter().chain(&diagnostics).find(|d| d.is_error());
    match (compiled, error) {
        (Some(compiled), None) => Ok(compiled),
        (_, error) => {
            let cause = error.map_or("it does not compile", |d| d.message.as_str());
            let message = format!("these sizes do not make an arch: {cause}");
            Err(Problem::in_file(name, message, "check the sizes in the configuration"))
        }
    }
}

/// Converts an arch to a model of a released family, if it is one.
pub fn model(compiled: &Compiled) -> Result<Model, Problem> {
    let refuse = |reason: String| {
        Problem::in_file(
            compiled.name.clone(),
            format!("this arch is not in one of the released families: {reason}"),
            "only archs with equal layers of Llama, GLA5, GDN2 or Mamba2 can be exported so; `--to hf`, `torch` and `card` take any arch",
        )
    };
    let fields =
        Fields(compiled.fields.iter().map(|f| (f.path.as_str(), f.value.as_str())).collect());
    let model = match fields.model() {
        Ok(model) => model,
        // A Llama may be written in other definitions.
        Err(reason) => llama(compiled).ok_or_else(|| refuse(reason))?,
    };
    let again = compile(&compiled.name, &model.text(&compiled.name, "Again."))?;
    if is_same(compiled, &again) {
        return Ok(model);
    }
    Err(refuse(match differing(&compiled.fields, &again.fields) {
        Some((path, ours, theirs)) => format!("`{path}` is {ours}, but {theirs} in theirs"),
        None => "its definitions compute something else".to_owned(),
    }))
}

/// Whether two archs have the same graph and the same parameters.
pub(crate) fn is_same(left: &Compiled, right: &Compiled) -> bool {
    let (left, right) = (&left.identity, &right.identity);
    left.graph == right.graph && left.manifest == right.manifest
}

/// The first field that differs: its path and both values.
pub(crate) fn differing(ours: &[Field], theirs: &[Field]) -> Option<(String, String, String)> {
    let table = |fields: &[Field]| -> BTreeMap<String, String> {
        fields.iter().map(|f| (f.path.clone(), f.value.clone())).collect()
    };
    let (ours, theirs) = (table(ours), table(theirs));
    let none = "absent".to_owned();
    ours.keys().chain(theirs.keys()).find_map(|path| {
        let (a, b) = (ours.get(path).unwrap_or(&none), theirs.get(path).unwrap_or(&none));
        (a != b && path != "init").then(|| (path.clone(), a.clone(), b.clone()))
    })
}

/// The released Llama that the graph resembles.
fn llama(compiled: &Compiled) -> Option<Model> {
    let mut model = decoder::model(compiled, QkNorm::Joint)?;
    model.options = ModelOptions::default();
    if let Mixer::Attention(attention) = &mut model.mixer {
        attention.options = AttentionOptions::default();
    }
    Some(model)
}

struct Fields<'a>(BTreeMap<&'a str, &'a str>);

impl Fields<'_> {
    fn text(&self, path: &str) -> Result<&str, String> {
        self.0.get(path).copied().ok_or_else(|| format!("it has no `{path}`"))
    }

    fn int(&self, path: &str) -> Result<i64, String> {
        let text = self.text(path)?;
        text.parse().map_err(|_| format!("`{path}` is {text}"))
    }

    fn decimal(&self, path: &str) -> Result<Decimal, String> {
        let text = self.text(path)?;
        Decimal::parse(text).map_err(|_| format!("`{path}` is {text}"))
    }

    /// The model that the first layer describes. Compiling it again shows whether all layers are equal.
    fn model(&self) -> Result<Model, String> {
        let tied = match self.text("head")? {
            "untied" => false,
            "tied" => true,
            head => return Err(format!("its head is `{head}`")),
        };
        let mlp = match self.text("layers.0")? {
            "decoder" => true,
            "mixer_only" => false,
            block => return Err(format!("its layers are `{block}`")),
        };
        let hidden = match mlp {
            true if self.text("layers.0.mlp")? == "swiglu" => {
                Some(self.int("layers.0.mlp.hidden")?)
            }
            true => return Err(format!("its MLP is `{}`", self.text("layers.0.mlp")?)),
            false => None,
        };
        let rows = self.0.iter().filter_map(|(path, rule)| {
            Some((path.strip_prefix("init.")?.to_owned(), (*rule).to_owned()))
        });
        Ok(Model {
            vocab: self.int("vocab")?,
            dim: self.int("dim")?,
            layers: self.int("layers")?,
            norm_eps: self.decimal("norm_eps")?,
            mixer: self.mixer()?,
            hidden,
            tied,
            canon: self.canon()?,
            init: Init::from_rows(rows.collect()),
            options: ModelOptions::default(),
        })
    }

    fn mixer(&self) -> Result<Mixer, String> {
        let at = |name: &str| format!("layers.0.mixer.{name}");
        let heads = self.int(&at("heads"))?;
        let short_conv = || Ok::<bool, String>(self.text(&at("short_conv"))? == "true");
        Ok(match self.text("layers.0.mixer")? {
            "attention" => {
                let layout = match self.text(&at("rope.layout"))? {
                    "half" => RopeLayout::Half,
                    _ => RopeLayout::Interleaved,
                };
                Mixer::Attention(Attention {
                    heads,
                    kv_heads: self.int(&at("kv_heads"))?,
                    head_dim: self.int(&at("head_dim"))?,
                    qk_norm: match self.text(&at("qk_norm"))? {
                        "true" => QkNorm::Joint,
                        _ => QkNorm::None,
                    },
                    theta: self.decimal(&at("rope.theta"))?,
                    layout,
                    rope_dims: self.int(&at("rope.dims"))?,
                    options: AttentionOptions::default(),
                })
            }
            "gla" => Mixer::Gla5 { heads, short_conv: short_conv()? },
            "gated_deltanet" => Mixer::Gdn2 { heads, short_conv: short_conv()? },
            "mamba2" => {
                let state = self.int(&at("state"))?;
                Mixer::Mamba2 { heads, state, short_conv: short_conv()? }
            }
            mixer => return Err(format!("its mixer is `{mixer}`")),
        })
    }

    fn canon(&self) -> Result<Canon, String> {
        let mut canon = Canon::NONE;
        for slot in ['A', 'B', 'C', 'D'] {
            let path = format!("layers.0.slots.{slot}");
            match self.0.get(path.as_str()).copied() {
                None | Some("empty" | "none") => continue,
                Some("canon") => {}
                Some(fill) => return Err(format!("slot {slot} holds `{fill}`")),
            }
            canon.slots.push(slot);
            canon.kernel = self.int(&format!("{path}.kernel"))?;
            canon.residual = self.text(&format!("{path}.residual"))? == "true";
            canon.silu = self.text(&format!("{path}.activation"))? == "silu";
        }
        Ok(canon)
    }
}
