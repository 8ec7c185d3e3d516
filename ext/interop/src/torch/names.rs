//! Names of tensors in the generated module: ours, in the form that PyTorch's modules give theirs.
//!
//! They are the attributes of instances, then `weight` or `bias`; a raw `param` is an attribute itself. A name is a
//! function of its path and of whether other paths continue it, so a layer's class and the whole model agree.

use std::collections::BTreeSet;

use compiler::graph::Param;

/// Words that an attribute cannot be: Python's keywords, and the attributes of `nn.Module`.
const TAKEN: &[&str] = &[
    "False",
    "None",
    "True",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "class",
    "continue",
    "def",
    "del",
    "elif",
    "else",
    "except",
    "finally",
    "for",
    "from",
    "global",
    "if",
    "import",
    "in",
    "is",
    "lambda",
    "nonlocal",
    "not",
    "or",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
    "T_destination",
    "add_module",
    "apply",
    "bfloat16",
    "buffers",
    "call_super_init",
    "children",
    "compile",
    "cpu",
    "cuda",
    "double",
    "dump_patches",
    "eval",
    "extra_repr",
    "float",
    "forward",
    "get_buffer",
    "get_extra_state",
    "get_parameter",
    "get_submodule",
    "half",
    "ipu",
    "load_state_dict",
    "modules",
    "mtia",
    "named_buffers",
    "named_children",
    "named_modules",
    "named_parameters",
    "parameters",
    "register_backward_hook",
    "register_buffer",
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_load_state_dict_post_hook",
    "register_load_state_dict_pre_hook",
    "register_module",
    "register_parameter",
    "register_state_dict_post_hook",
    "register_state_dict_pre_hook",
    "requires_grad_",
    "set_extra_state",
    "set_submodule",
    "share_memory",
    "state_dict",
    "to",
    "to_empty",
    "train",
    "training",
    "type",
    "xpu",
    "zero_grad",
];

/// Older versions of `transformers` load `beta` as `bias` and `gamma` as `weight`, wherever these words are in a name.
const RENAMED: [(&str, &str); 2] = [("be", "ta"), ("gam", "ma")];

/// The text with one more `_` between the two halves of a word.
fn apart(text: &str, (head, tail): (&str, &str)) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(head) {
        out += before;
        out += head;
        if after.trim_start_matches('_').starts_with(tail) {
            out.push('_');
        }
        rest = after;
    }
    out + rest
}

/// A part of a path as a Python attribute. Taken words get `_`; a leading `_`, which Python and PyTorch reserve, becomes
/// `under1_`. Names that look like such a result change, too, so that no two parts become equal.
fn attribute(part: &str) -> String {
    let part = &RENAMED.into_iter().fold(part.to_owned(), |part, word| apart(&part, word));
    let bare = part.trim_start_matches('_');
    let count = part.len() - bare.len();
    let looks_escaped = part
        .strip_prefix("under")
        .and_then(|rest| rest.split_once('_'))
        .is_some_and(|(n, _)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    if count > 0 || looks_escaped {
        return format!("under{count}_{bare}");
    }
    let underscores = |rest: &str| rest.bytes().all(|b| b == b'_');
    let taken = TAKEN.iter().any(|word| part.strip_prefix(word).is_some_and(underscores));
    if taken { format!("{part}_") } else { part.clone() }
}

/// The names of the tensors of parameters, in their order.
pub fn tensor_names(params: &[Param]) -> Vec<String> {
    let paths: BTreeSet<&str> = params.iter().map(|param| param.path.as_str()).collect();
    let parents: BTreeSet<&str> =
        paths.iter().filter_map(|path| path.rsplit_once('.')).map(|(parent, _)| parent).collect();
    let name = |param: &Param| {
        let path = param.path.as_str();
        let mut parts: Vec<String> = path.split('.').map(attribute).collect();
        // A table of embeddings is a module, whose name may be that of its role.
        let raw = path.rsplit('.').next() == Some(&param.role)
            && param.role != "embed"
            && !parents.contains(path);
        let bias = path.strip_suffix(".bias").is_some_and(|owner| paths.contains(owner));
        if !raw && !bias {
            parts.push("weight".to_owned());
        }
        parts.join(".")
    };
    params.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use compiler::number::InitRule;

    use super::*;

    fn names(params: &[(&str, &str)]) -> Vec<String> {
        let param = |(path, role): &(&str, &str)| Param {
            path: (*path).to_owned(),
            shape: vec![1],
            init: InitRule::Ones,
            role: (*role).to_owned(),
            slot: None,
        };
        tensor_names(&params.iter().map(param).collect::<Vec<_>>())
    }

    #[test]
    fn instances_have_weights_and_biases_and_raw_parameters_are_attributes() {
        let params = [
            ("layers.0.mixer.wq", "linear"),
            ("layers.0.mixer.wq.bias", "bias"),
            ("layers.0.mixer.A_log", "A_log"),
            ("layers.0.mixer.bias", "bias"),
            ("layers.0.bias", "linear"),
            ("layers.0.bias.bias", "bias"),
            ("embed", "embed"),
        ];
        let wanted = [
            "layers.0.mixer.wq.weight",
            "layers.0.mixer.wq.bias",
            "layers.0.mixer.A_log",
            "layers.0.mixer.bias",
            "layers.0.bias.weight",
            "layers.0.bias.bias",
            "embed.weight",
        ];
        assert_eq!(names(&params), wanted);
    }

    #[test]
    fn no_two_parts_become_equal_and_none_is_taken() {
        let odd = ["type", "type_", "type__", "_type", "__type", "under1_type", "under0_type", "x"];
        let odd = odd.iter().chain(
            ["_", "__", "_1", "under", "under_x", "class", "weight", "beta", "be_ta"].iter(),
        );
        let attributes: BTreeSet<String> = odd.clone().map(|part| attribute(part)).collect();
        assert_eq!(attributes.len(), odd.count());
        for name in &attributes {
            assert!(!TAKEN.contains(&name.as_str()) && !name.starts_with('_'), "{name}");
        }
        assert_eq!(
            ["wbeta", "be_ta", "beam", "gamma2"].map(attribute),
            ["wbe_ta", "be__ta", "beam", "gam_ma2"]
        );
        assert_eq!(
            ["requires_grad", "requires_grad_"].map(attribute),
            ["requires_grad", "requires_grad__"]
        );
    }
}
