//! The crate's only test binary: it runs plans.
//!
//! In: archs as text, vectors of the reference code, random cases. Must stay true: a plan computes the same as the
//! published models and as libtorch's autograd, however it is cut and run.

mod runtime {
    mod decode;
    mod erasure;
    mod golden;
    mod gpu_cases;
    mod gradients;
    mod mixers;
    mod optimizers;
    mod scans;
    mod stock;
    mod streaming;
    mod support;
    mod uses;
    mod weights;
}
