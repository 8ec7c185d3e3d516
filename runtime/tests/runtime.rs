//! Tests that run plans: a plan computes the same as the published models and as libtorch's autograd, however it is cut
//! and run.

mod runtime {
    mod decode;
    mod erasure;
    mod gpu_cases;
    mod gradients;
    mod mixers;
    mod optimizers;
    mod scans;
    mod streaming;
    mod support;
    mod uses;
}
