//! The table of `canonc bench peers`, and the sentences below it.

use models::bench::peers::table::{Entry, Measured, Side, conclusions, table};
use models::bench::process::Group;

fn one(session: usize, arch: &'static str, side: Side, rounds: [f64; 3]) -> Measured<'static> {
    let group = |ms: f64| Group { ms: vec![ms, ms + 1.0, ms - 1.0], faults: Some(6) };
    let retaining = session > 0;
    Measured {
        session,
        entry: Entry { arch, side, retaining },
        groups: rounds.map(group).to_vec(),
        peak: Some(if side == Side::Ours { 300 << 20 } else { 900 << 20 }),
    }
}

#[test]
fn ratios_are_of_the_same_session_and_round() {
    let measured = [
        one(0, "llama", Side::Ours, [100.0, 200.0, 100.0]),
        one(0, "llama", Side::Eager, [200.0, 300.0, 190.0]),
        one(0, "llama", Side::Compile, [150.0, 220.0, 140.0]),
        one(0, "llamacanon", Side::Ours, [110.0, 220.0, 120.0]),
        one(0, "llamacanon", Side::Eager, [300.0, 420.0, 300.0]),
        one(1, "llama", Side::Ours, [50.0, 50.0, 50.0]),
        one(1, "llama", Side::Eager, [60.0, 70.0, 80.0]),
    ];
    let table = table(&measured);
    let row = |name: &str| table.lines().find(|line| line.trim().starts_with(name)).unwrap();
    let eager = row("PyTorch eager ");
    for part in ["200 ms", "189 ms", "190–300", "1.90× (1.50–2.00)", " 2 ", "900.0 MiB"] {
        assert!(eager.contains(part), "{part} in {eager}");
    }
    assert!(row("PyTorch eager, retaining").contains("1.40× (1.20–1.60)"), "{table}");
    assert_eq!(
        conclusions(&measured),
        "llama: PyTorch's fastest step as installed (PyTorch compile) takes 1.40× (1.10–1.50) canonc's time\n\
         llama: PyTorch's fastest step with a retaining allocator (PyTorch eager, retaining) takes 1.40× \
         (1.20–1.60) canonc's time\n\
         llamacanon: PyTorch's fastest step as installed (PyTorch eager) takes 2.50× (1.91–2.73) canonc's time\n\
         Canon layers add 10% (10–20%) to canonc's step and 100% (91–114%) to PyTorch's fastest as installed\n\
         llama: canonc's peak memory is 33% of eager PyTorch's\n\
         llamacanon: canonc's peak memory is 33% of eager PyTorch's\n"
    );
}
