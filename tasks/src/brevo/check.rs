//! The checker of Brevo's answers, by our strict rule and by the published checker's. Any valid order is right; the two
//! rules differ only in that the published checker lets a vertex be named twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Brevo;

/// The verdicts of both rules on one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// By the paper's rule, which is also ours.
    pub strict: Result<(), Wrong>,
    /// By the published checker's rule, which accepts repeated vertices.
    pub published: bool,
}

/// The first error in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The tokens do not split into names.
    Malformed,
    /// A name that does not belong to an ancestor of the query.
    Foreign,
    /// A vertex comes before one of its parents.
    Early,
    /// A name occurs twice.
    Repeated,
    /// An ancestor of the query has no name in the answer.
    Missing,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wrong::Malformed => "the tokens are not a list of names",
            Wrong::Foreign => "it names a vertex that is not an ancestor of the query",
            Wrong::Early => "it names a vertex before one of its parents",
            Wrong::Repeated => "it names a vertex twice",
            Wrong::Missing => "an ancestor of the query is missing",
        })
    }
}

impl Brevo {
    /// Judges `answer` to the question `prompt`. `answer` is the generated text up to, and without, the end token.
    /// `prompt` starts with bos and ends with the answer marker.
    pub fn judge(&self, prompt: &[u32], answer: &[u32]) -> Verdict {
        match self.ancestry(prompt) {
            Some(ancestry) => ancestry.judge(self, answer),
            None => Verdict { strict: Err(Wrong::Malformed), published: false },
        }
    }

    /// The published checker's call, for a whole sequence, which must begin and end with bos.
    pub fn judge_sequence(&self, tokens: &[u32]) -> Verdict {
        let malformed = Verdict { strict: Err(Wrong::Malformed), published: false };
        let Some((&last, rest)) = tokens.split_last() else { return malformed };
        let Some(marker) = rest.iter().position(|&token| token == self.marks.answer) else {
            return malformed;
        };
        if last != self.marks.bos {
            return malformed;
        }
        let (prompt, answer) = rest.split_at(marker + 1);
        self.judge(prompt, answer)
    }

    fn ancestry<'a>(&self, prompt: &'a [u32]) -> Option<Ancestry<'a>> {
        let (&bos, rest) = prompt.split_first()?;
        let (&marker, rest) = rest.split_last()?;
        let query_at = rest.iter().position(|&token| token == self.marks.query)?;
        let (edges, query) = rest.split_at(query_at);
        let edges = self.names(edges)?;
        let [query] = self.names(query.get(1..)?)?[..] else { return None };
        if bos != self.marks.bos || marker != self.marks.answer || edges.len() % 2 != 0 {
            return None;
        }
        let mut parents: BTreeMap<&[u32], Vec<&[u32]>> = BTreeMap::new();
        for edge in edges.chunks_exact(2) {
            parents.entry(edge[1]).or_default().push(edge[0]);
        }
        let (mut ancestors, mut open) = (BTreeSet::from([query]), vec![query]);
        while let Some(vertex) = open.pop() {
            for &parent in parents.get(vertex).into_iter().flatten() {
                if ancestors.insert(parent) {
                    open.push(parent);
                }
            }
        }
        Some(Ancestry { parents, ancestors })
    }

    /// Splits these tokens into names.
    pub fn names<'a>(&self, tokens: &'a [u32]) -> Option<Vec<&'a [u32]>> {
        let continues = self.continues();
        let last = if self.multi { 2 * continues } else { self.size };
        let (mut names, mut start) = (Vec::new(), 0);
        for (at, &token) in tokens.iter().enumerate() {
            if token == 0 || token > last {
                return None;
            }
            if token > continues {
                names.push(&tokens[start..=at]);
                start = at + 1;
            }
        }
        (start == tokens.len()).then_some(names)
    }
}

/// The vertices that an answer has to name, with the parents of each.
struct Ancestry<'a> {
    parents: BTreeMap<&'a [u32], Vec<&'a [u32]>>,
    ancestors: BTreeSet<&'a [u32]>,
}

impl Ancestry<'_> {
    fn judge(&self, brevo: &Brevo, answer: &[u32]) -> Verdict {
        let wrong = |wrong| Verdict { strict: Err(wrong), published: false };
        let Some(names) = brevo.names(answer) else { return wrong(Wrong::Malformed) };
        let mut seen = BTreeSet::new();
        let mut repeated = false;
        for name in names {
            if !self.ancestors.contains(name) {
                return wrong(Wrong::Foreign);
            }
            let mut parents = self.parents.get(name).into_iter().flatten();
            if !parents.all(|parent| seen.contains(parent)) {
                return wrong(Wrong::Early);
            }
            repeated |= !seen.insert(name);
        }
        match (seen.len() == self.ancestors.len(), repeated) {
            (false, _) => wrong(Wrong::Missing),
            (true, true) => Verdict { strict: Err(Wrong::Repeated), published: true },
            (true, false) => Verdict { strict: Ok(()), published: true },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brevo::DEFINITION;
    use crate::task::Generator;
    use serde_json::json;
    use support::golden;

    fn brevo(multi: bool) -> Brevo {
        let arguments = DEFINITION.arguments(json!({"N": 14, "multi": multi}));
        Brevo::new(&arguments.unwrap()).unwrap()
    }

    #[test]
    fn verdicts_equal_the_published_ones() {
        let cases = golden::cases("brevo_check");
        assert_eq!(cases.len(), 24);
        for case in &cases {
            let brevo = brevo(case["multi"].as_bool().unwrap());
            let tokens = golden::tokens(&case["tokens_with_final_9999"]);
            let verdict = brevo.judge_sequence(&tokens);
            assert_eq!(verdict.published, case["upstream_ok"], "{}", case["id"]);
            assert_eq!(
                verdict.strict.is_ok(),
                case["paper_ok"].as_bool().unwrap(),
                "{}",
                case["id"]
            );
            assert_eq!(
                verdict.strict == Err(Wrong::Repeated),
                case["has_duplicate"].as_bool().unwrap()
            );
        }
    }

    #[test]
    fn each_wrong_answer_has_its_verdict() {
        // 1 -> 3, 2 -> 3, 3 -> 4, and a separate edge 5 -> 6. The query is 4.
        let prompt = [9999, 1, 3, 2, 3, 3, 4, 5, 6, 9997, 4, 9998];
        let judge = |answer: &[u32]| brevo(false).judge(&prompt, answer);
        for right in [[1, 2, 3, 4], [2, 1, 3, 4]] {
            assert_eq!(judge(&right), Verdict { strict: Ok(()), published: true });
        }
        let cases: [(&[u32], Wrong, bool); 9] = [
            (&[1, 2, 2, 3, 4], Wrong::Repeated, true),
            (&[1, 2, 3, 4, 4], Wrong::Repeated, true),
            (&[1, 3, 2, 4], Wrong::Early, false),
            (&[1, 2, 3], Wrong::Missing, false),
            (&[], Wrong::Missing, false),
            (&[5, 1, 2, 3, 4], Wrong::Foreign, false),
            (&[1, 2, 3, 4, 7], Wrong::Foreign, false),
            (&[1, 2, 3, 4, 9998], Wrong::Malformed, false),
            (&[0], Wrong::Malformed, false),
        ];
        for (answer, wrong, published) in cases {
            assert_eq!(judge(answer), Verdict { strict: Err(wrong), published }, "{answer:?}");
            assert!(!wrong.to_string().is_empty());
        }
        for prompt in
            [&prompt[1..], &prompt[..11], &[9999, 1, 9997, 4, 9998][..], &[9999, 1, 3, 9998], &[]]
        {
            assert_eq!(brevo(false).judge(prompt, &[4]).strict, Err(Wrong::Malformed));
        }
    }

    #[test]
    fn names_of_several_tokens_end_with_the_second_alphabet() {
        let names = brevo(true);
        assert_eq!(names.names(&[1, 2, 5, 8, 4, 6]), Some(vec![&[1, 2, 5][..], &[8], &[4, 6]]));
        assert_eq!(names.names(&[1, 2]), None);
        assert_eq!(names.names(&[9]), None);
    }
}
