//! Tests that run plans: a plan computes the same as the published models and as libtorch's autograd, however it is cut
//! and run.

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
