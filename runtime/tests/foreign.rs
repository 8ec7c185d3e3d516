//! Models and recipes of other programs: in, out, and what is refused. No libtorch.

mod foreign {
    mod checkpoints;
    mod pth;
    mod recipes;
}
