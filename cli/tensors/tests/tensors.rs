//! Facts of `canonc doctor` about libtorch, and ranks that are refused.

use cli::facts::State;
use tensors::doctor::openmp;
use tensors::ranks::enough_gpus;

#[test]
fn two_openmp_libraries_are_a_finding() {
    let line = |path: &str| format!("7f00-7f01 r-xp 00000000 fe:00 12 {path}\n");
    let maps = [line("/usr/lib/libc.so.6"), line("/torch/lib/libgomp-1.so.1"), line("[heap]")];
    let fact = openmp(&(maps.concat() + &maps[1])).unwrap();
    assert_eq!((fact.state, fact.value.as_str()), (State::Has, "/torch/lib/libgomp-1.so.1"));
    let fact = openmp(&(maps.concat() + &line("/usr/lib/libgomp.so.1"))).unwrap();
    assert_eq!(fact.state, State::Lacks);
    assert!(openmp("").is_none());
}

#[test]
fn more_ranks_than_gpus_are_refused_before_they_start() {
    for (ranks, devices) in [(1, 1), (8, 8), (2, 8), (2, 0)] {
        assert!(enough_gpus(ranks, devices).is_ok(), "{ranks} on {devices}");
    }
    let refused = enough_gpus(8, 4).unwrap_err();
    let said = refused.message.unwrap();
    assert_eq!(said, "8 ranks on this machine need a GPU each, but it has 4 GPUs");
}
