//! Models and recipes of other programs: import, export and errors. No libtorch.

mod foreign {
    mod checkpoints;
    mod configs;
    mod folders;
    mod pth;
    mod recipes;
    mod stock;
    mod stock_out;
    mod texts;
}
