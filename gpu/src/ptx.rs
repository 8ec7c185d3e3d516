//! Reads the parameters of a kernel from its PTX: the size of each, in order, and the alignment that a pointer is
//! declared with. A declaration of unknown form is an error.

/// One `.param` of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PtxParam {
    /// Size in bytes.
    pub(crate) bytes: u32,
    /// The alignment of what it points to, if it is declared as a pointer.
    pub(crate) points_to: Option<u32>,
}

/// The parameters of `.entry NAME(…)`.
pub(crate) fn params(ptx: &str, entry: &str) -> Result<Vec<PtxParam>, String> {
    let begin = ptx
        .match_indices(".entry ")
        .filter_map(|(at, word)| ptx.get(at + word.len()..))
        .find_map(|rest| rest.trim_start().strip_prefix(entry)?.trim_start().strip_prefix('('))
        .ok_or_else(|| format!("the PTX has no entry `{entry}`"))?;
    let (list, _) =
        begin.split_once(')').ok_or_else(|| format!("the parameters of `{entry}` do not end"))?;
    let uncommented: String = list
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join(" ");
    let declarations = uncommented.split(',').map(str::trim).filter(|text| !text.is_empty());
    declarations.map(|text| param(text).ok_or_else(|| format!("`{text}` of `{entry}`"))).collect()
}

/// The threads of a block that `.entry NAME` requires, if it requires a number.
pub(crate) fn threads(ptx: &str, entry: &str) -> Option<u32> {
    let begin = ptx
        .match_indices(".entry ")
        .filter_map(|(at, word)| ptx.get(at + word.len()..))
        .find_map(|rest| rest.trim_start().strip_prefix(entry)?.trim_start().strip_prefix('('))?;
    // Between the parameters and the body.
    let (head, _) = begin.split_once('{')?;
    let (_, count) = head.split_once(".reqntid")?;
    count.split_whitespace().next()?.trim_end_matches(',').parse().ok()
}

/// `.param .u64 .ptr .global .align 16 name` or `.param .u32 name`.
fn param(text: &str) -> Option<PtxParam> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (first, rest) = words.split_first()?;
    let (kind, rest) = rest.split_first()?;
    if *first != ".param" {
        return None;
    }
    let bytes = match *kind {
        ".u64" | ".s64" | ".b64" | ".f64" => 8,
        ".u32" | ".s32" | ".b32" | ".f32" => 4,
        ".u16" | ".s16" | ".b16" | ".f16" => 2,
        ".u8" | ".s8" | ".b8" => 1,
        _ => return None,
    };
    let (_, attributes) = rest.split_last()?;
    let align = attributes.iter().position(|word| *word == ".align");
    let align = align.and_then(|at| attributes.get(at + 1)).map(|word| word.parse());
    let points_to = match (attributes.contains(&".ptr"), align) {
        (false, None) => None,
        (true, None) => Some(1),
        (true, Some(Ok(align))) => Some(align),
        (_, Some(_)) => return None,
    };
    Some(PtxParam { bytes, points_to })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "//
.version 8.7
.target sm_80
.address_size 64

	// .globl	scale_grad
.visible .entry scale_grad(
	.param .u64 .ptr .global .align 16 scale_grad_param_0,
	.param .u32 scale_grad_param_1
)
{ ret; }
	// .globl	scale                           // -- Begin function scale
.visible .entry scale(
	.param .u64 .ptr .global .align 16 scale_param_0,
	.param .u64 .ptr .global .align 1 scale_param_1,  // y
	.param .u32 scale_param_2,
	.param .f32 scale_param_3,
	.param .u64 .ptr .global .align 1 scale_param_4
)
.reqntid 128
{ ret; }
";

    #[test]
    fn parameters_are_those_of_the_entry() {
        let pointer = |align| PtxParam { bytes: 8, points_to: Some(align) };
        let number = PtxParam { bytes: 4, points_to: None };
        let scale = params(PTX, "scale").unwrap();
        assert_eq!(scale, [pointer(16), pointer(1), number, number, pointer(1)]);
        assert_eq!(params(PTX, "scale_grad").unwrap(), [pointer(16), number]);
        assert_eq!((threads(PTX, "scale"), threads(PTX, "scale_grad")), (Some(128), None));
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        assert_eq!(params(PTX, "other").unwrap_err(), "the PTX has no entry `other`");
        let odd = ".entry f(.param .v4 f_param_0)";
        assert_eq!(params(odd, "f").unwrap_err(), "`.param .v4 f_param_0` of `f`");
        assert_eq!(
            params(".entry f(.param .u64", "f").unwrap_err(),
            "the parameters of `f` do not end"
        );
        assert_eq!(params(".entry f()", "f").unwrap(), []);
    }
}
