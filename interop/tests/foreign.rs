//! Models and recipes of other programs: in, out, and what is refused. No libtorch.

mod foreign {
    mod checkpoints;
    mod configs;
    mod folders;
    mod pth;
    mod recipes;
    mod texts;
}
