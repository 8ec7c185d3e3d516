//! The one test binary of the crate: plans, run.
//!
//! In: archs as text, vectors of the reference code, random cases. Must stay true: what a plan computes is what the
//! published models compute, what libtorch's autograd computes, and the same however it is cut and run.

mod runtime {
    mod archs;
    mod decode;
    mod erasure;
    mod golden;
    mod gradients;
    mod streaming;
    mod support;
    mod uses;
    mod weights;
}
