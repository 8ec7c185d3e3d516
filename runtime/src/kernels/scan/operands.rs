//! The operands of a scan on the CPU: their shapes checked, in dense memory, by head.

use std::borrow::Cow;

use tch::Tensor;

use super::super::dense::{PAD, transpose};
use super::super::{Isa, KernelError, ffi};
use super::Result;

/// How the state decays, and which value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanRule {
    /// Each key channel by its own gate.
    Channel,
    /// Each key channel by its own gate; a product of the state is written, too.
    LowRank,
    /// The whole state by one gate.
    Scalar,
    /// The whole state by one gate; writes the error of the state's prediction for the key, not the value.
    Delta,
}

impl ScanRule {
    /// Whether gates are by channel; else there is one per head and token, and a factor of its value.
    pub(super) fn has_channel_gates(self) -> bool {
        match self {
            ScanRule::Channel | ScanRule::LowRank => true,
            ScanRule::Scalar | ScanRule::Delta => false,
        }
    }
}

/// q and k [b, t, groups, d], v [b, t, h, e], g [b, t, h, d] (channel, low rank) or [b, t, h]; S [b, h, d, e].
#[derive(Clone, Copy)]
pub(super) struct FusedOperands<'a> {
    pub(super) q: &'a Tensor,
    pub(super) k: &'a Tensor,
    pub(super) v: &'a Tensor,
    pub(super) g: &'a Tensor,
    /// [b, t, h], the factor of values; none for channel gates.
    pub(super) beta: Option<&'a Tensor>,
    /// a and b [b, t, h, d] of the low-rank rule.
    pub(super) low_rank: Option<[&'a Tensor; 2]>,
    /// Factor of q.
    pub(super) scale: f32,
}

/// How a head's state lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateLayout {
    /// [d, e]
    Keys,
    /// [e, d], for the scalar rule alone.
    Values,
}

impl StateLayout {
    /// The sizes of a state, from [b, h, d, e].
    pub(super) fn sizes<T>(self, [b, h, d, e]: [T; 4]) -> [T; 4] {
        match self {
            StateLayout::Keys => [b, h, d, e],
            StateLayout::Values => [b, h, e, d],
        }
    }
}

/// Sizes of a scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) time: usize,
    pub(super) heads: usize,
    pub(super) groups: usize,
    pub(super) d: usize,
    pub(super) e: usize,
    /// Padded width.
    pub(super) dp: usize,
    pub(super) ep: usize,
    /// Tokens per chunk, and its rows, padded.
    pub(super) chunk: usize,
    pub(super) rows: usize,
}

/// Operands in newly allocated dense memory.
pub(super) struct Dense {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Option<Tensor>,
    low_rank: Option<[Tensor; 2]>,
    state: Option<Tensor>,
    scale: f32,
}

impl Dense {
    pub(super) fn from_operands(
        operands: FusedOperands<'_>,
        state: Option<&Tensor>,
    ) -> Result<Self> {
        let FusedOperands { q, k, v, g, beta, low_rank, scale } = operands;
        let low_rank = match low_rank {
            Some([a, b]) => Some([a.f_contiguous()?, b.f_contiguous()?]),
            None => None,
        };
        Ok(Self {
            q: q.f_contiguous()?,
            k: k.f_contiguous()?,
            v: v.f_contiguous()?,
            g: g.f_contiguous()?,
            beta: beta.map(Tensor::f_contiguous).transpose()?,
            low_rank,
            state: state.map(Tensor::f_contiguous).transpose()?,
            scale,
        })
    }

    /// Refuses operands of other shapes, and those that the rule does not have.
    fn check(
        &self,
        rule: ScanRule,
        chunk: usize,
        layout: StateLayout,
        [b, t, groups, d, h, e]: [i64; 6],
    ) -> Result<()> {
        let expect = |what: &str, x: &Tensor, want: &[i64]| match x.size() == want {
            true => Ok(()),
            false => Err(KernelError::new(format!(
                "a scan's {what} of shape {:?}, expected {want:?}",
                x.size()
            ))),
        };
        expect("k", &self.k, &[b, t, groups, d])?;
        expect("v", &self.v, &[b, t, h, e])?;
        let (channels, per_head) = ([b, t, h, d], [b, t, h]);
        let gates = if rule.has_channel_gates() { &channels[..] } else { &per_head };
        expect("g", &self.g, gates)?;
        match (rule.has_channel_gates(), &self.beta) {
            (true, None) => {}
            (false, Some(beta)) => expect("beta", beta, &per_head)?,
            (true, Some(_)) | (false, None) => {
                return Err(KernelError::new(format!("a {rule:?} scan and its beta")));
            }
        }
        match (rule == ScanRule::LowRank, &self.low_rank) {
            (true, Some([x, y])) => {
                expect("a", x, &channels)?;
                expect("b", y, &channels)?;
            }
            (false, None) => {}
            (true, None) | (false, Some(_)) => {
                return Err(KernelError::new(format!("a {rule:?} scan and its a and b")));
            }
        }
        if let Some(state) = &self.state {
            expect("state", state, &layout.sizes([b, h, d, e]))?;
        }
        if layout == StateLayout::Values && rule != ScanRule::Scalar {
            return Err(KernelError::new(format!("a {rule:?} scan of states by value")));
        }
        if groups == 0 || h % groups != 0 || chunk == 0 {
            return Err(KernelError::new(format!("{h} heads over {groups} groups")));
        }
        Ok(())
    }

    pub(super) fn scan(
        &self,
        isa: Isa,
        rule: ScanRule,
        chunk: usize,
        layout: StateLayout,
    ) -> Result<CheckedOperands<'_>> {
        let [b, t, groups, d] = super::four("q", &self.q)?;
        let [_, _, h, e] = super::four("v", &self.v)?;
        self.check(rule, chunk, layout, [b, t, groups, d, h, e])?;
        let size = |n: i64| n as usize;
        let sizes = Sizes {
            batch: size(b),
            time: size(t),
            heads: size(h),
            groups: size(groups),
            d: size(d),
            e: size(e),
            dp: size(d).next_multiple_of(PAD),
            ep: size(e).next_multiple_of(PAD),
            chunk,
            rows: chunk.next_multiple_of(PAD),
        };
        Ok(CheckedOperands {
            isa,
            rule,
            layout,
            sizes,
            scale: self.scale,
            q: ffi::slice(&self.q)?,
            k: ffi::slice(&self.k)?,
            v: ffi::slice(&self.v)?,
            g: ffi::slice(&self.g)?,
            beta: self.beta.as_ref().map(ffi::slice).transpose()?,
            low_rank: match &self.low_rank {
                Some([a, b]) => Some([ffi::slice(a)?, ffi::slice(b)?]),
                None => None,
            },
            state: self.state.as_ref().map(ffi::slice).transpose()?,
        })
    }
}

/// Checked operands, for all tasks to read.
pub(super) struct CheckedOperands<'a> {
    pub(super) isa: Isa,
    pub(super) rule: ScanRule,
    pub(super) layout: StateLayout,
    pub(super) sizes: Sizes,
    pub(super) scale: f32,
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) g: &'a [f32],
    pub(super) beta: Option<&'a [f32]>,
    pub(super) low_rank: Option<[&'a [f32]; 2]>,
    state: Option<&'a [f32]>,
}

impl CheckedOperands<'_> {
    pub(super) fn firsts(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.sizes.time).step_by(self.sizes.chunk)
    }

    /// Number of tokens in the chunk that starts there.
    pub(super) fn rows(&self, first: usize) -> usize {
        self.sizes.chunk.min(self.sizes.time - first)
    }

    /// The given state of a head.
    pub(super) fn before(&self, task: usize) -> Option<&[f32]> {
        let Sizes { d, e, .. } = self.sizes;
        self.state.map(|state| &state[task * d * e..][..d * e])
    }

    /// The width of a state's rows in memory, and padded.
    fn widths(&self) -> [usize; 2] {
        let Sizes { d, e, dp, ep, .. } = self.sizes;
        match self.layout {
            StateLayout::Keys => [e, ep],
            StateLayout::Values => [d, dp],
        }
    }

    /// The state before the first token, [d, e] padded.
    pub(super) fn start(&self, task: usize) -> Vec<f32> {
        let ([width, padded], Sizes { dp, ep, .. }) = (self.widths(), self.sizes);
        let mut s = vec![0.0; dp * ep];
        let Some(before) = self.before(task) else { return s };
        for (to, from) in s.chunks_exact_mut(padded).zip(before.chunks_exact(width)) {
            to[..width].copy_from_slice(from);
        }
        match self.layout {
            StateLayout::Keys => s,
            StateLayout::Values => self.turned(&s, dp),
        }
    }

    /// The state [d, e] padded, as it lies in memory.
    pub(super) fn unpad(&self, s: &[f32], into: &mut [f32]) {
        let [width, padded] = self.widths();
        let s = match self.layout {
            StateLayout::Keys => Cow::Borrowed(s),
            StateLayout::Values => Cow::Owned(self.turned(s, self.sizes.ep)),
        };
        for (to, from) in into.chunks_exact_mut(width).zip(s.chunks_exact(padded)) {
            to.copy_from_slice(&from[..width]);
        }
    }

    /// The transpose of a padded state with rows of `width`.
    fn turned(&self, s: &[f32], width: usize) -> Vec<f32> {
        let mut turned = vec![0.0; s.len()];
        transpose(self.isa, &mut turned, s, width);
        turned
    }

    /// A chunk's rows of a and b, padded with zeros.
    pub(super) fn load_low_rank(&self, task: usize, first: usize, a: &mut [f32], b: &mut [f32]) {
        let Sizes { time, heads, d, dp, .. } = self.sizes;
        let (batch, head) = (task / heads, task % heads);
        let count = self.rows(first);
        for (from, to) in self.low_rank.iter().flatten().zip([a, b]) {
            to[count * dp..].fill(0.0);
            for t in 0..count {
                let at = ((batch * time + first + t) * heads + head) * d;
                to[t * dp..][..d].copy_from_slice(&from[at..][..d]);
            }
        }
    }
}
