//! Launches against a driver that records, with a library made here.

use std::io::Write;

use lzma_rust2::{LzmaOptions, LzmaWriter};
use sha2::{Digest, Sha256};

use super::*;

/// `x`, `y` pointers, a row's stride that the aligned image assumes to be divisible by 16, a count and a factor.
const PARAMS: &str = r#"[{"name": "x", "type": "*bf16", "divisible": 16}, {"name": "y", "type": "*f32", "divisible": 16},
    {"name": "rows", "type": "i32"}, {"name": "row", "type": "i64", "divisible": 16},
    {"name": "by", "type": "f32"}, {"name": "s0", "type": "scratch"}, {"name": "s1", "type": "scratch"}]"#;

fn ptx(align: u32, row: &str, threads: u32) -> Vec<u8> {
    let pointer = |n| format!(".param .u64 .ptr .global .align {align} scale_param_{n}");
    format!(
        ".visible .entry scale(\n{},\n{},\n.param .u32 scale_param_2,\n.param {row} scale_param_3,\n\
         .param .f32 scale_param_4,\n.param .u64 .ptr .global .align 1 scale_param_5,\n\
         .param .u64 .ptr .global .align 1 scale_param_6\n)\n.reqntid {threads}\n{{ ret; }}\n",
        pointer(0),
        pointer(1)
    )
    .into_bytes()
}

/// A library of one kernel, whose PTX declares its stride so.
fn library(shared: u32, warps: u32, row: &str) -> &'static Library {
    with_images(shared, warps, row, &[true, false])
}

fn with_images(shared: u32, warps: u32, row: &str, alignments: &[bool]) -> &'static Library {
    let (mut images, mut listed) = (Vec::new(), Vec::new());
    for target in Target::ALL {
        for aligned in alignments.iter().copied() {
            let code = match target {
                Target::Ptx80 => ptx(if aligned { 16 } else { 1 }, row, 32 * warps.min(8)),
                Target::Sm80 | Target::Sm90a | Target::Sm100a => {
                    [b"\x7fELF", target.name().as_bytes(), &[u8::from(aligned)]].concat()
                }
            };
            let options = LzmaOptions::with_preset(1);
            let mut packed = LzmaWriter::new_use_header(Vec::new(), &options, None).unwrap();
            packed.write_all(&code).unwrap();
            let packed = packed.finish().unwrap();
            let sha256: String = Sha256::digest(&code).iter().map(|b| format!("{b:02x}")).collect();
            listed.push(format!(
                r#"{{"target": "{target}", "aligned": {aligned}, "entry": "scale", "warps": {warps}, "shared": {shared},
                "offset": {}, "length": {}, "start": 0, "size": {}, "sha256": "{sha256}", "registers": 16}}"#,
                images.len(),
                packed.len(),
                code.len()
            ));
            images.extend(packed);
        }
    }
    let manifest = format!(
        r#"{{"format": 2, "triton": "3.6.0", "kernels": [{{"name": "scale", "constants": {{"dtype": "bf16", "BLOCK": 64}},
        "params": {PARAMS}, "grid": "cdiv(rows, BLOCK), 2", "images": [{}]}}]}}"#,
        listed.join(",")
    );
    Box::leak(Box::new(Library::new(&manifest, Vec::leak(images)).unwrap()))
}

fn launcher(library: &'static Library, major: u32, minor: u32) -> (Launcher, Fake) {
    let fake = Fake::new(library, major, minor);
    (Launcher::new(library, Box::new(fake.clone())).unwrap(), fake)
}

fn constants() -> [(&'static str, Constant); 2] {
    [("dtype", "bf16".into()), ("BLOCK", 64.into())]
}

fn scale(launcher: &Launcher, x: u64, rows: i64, row: i64) -> Result<(), LaunchError> {
    launcher
        .call("scale", &constants())
        .pointer("x", Pointer { address: x, element: Element::Bf16 })
        .pointer("y", Pointer { address: 512, element: Element::F32 })
        .int("rows", rows)
        .int("row", row)
        .float("by", 0.5)
        .run()
}

#[test]
fn a_launch_has_the_arguments_of_the_ptx_in_order() {
    let library = library(1000, 4, ".u64");
    for (major, minor, target) in [
        (8, 0, Target::Sm80),
        (8, 9, Target::Sm80),
        (9, 0, Target::Sm90a),
        (10, 0, Target::Sm100a),
        (12, 0, Target::Ptx80),
    ] {
        let (launcher, fake) = launcher(library, major, minor);
        scale(&launcher, 4096, 65, 128).unwrap();
        let launched = fake.take();
        assert_eq!(launched.len(), 1);
        let Launched {
            kernel,
            compiled,
            entry,
            target: on,
            aligned,
            grid,
            threads,
            shared,
            values,
        } = &launched[0];
        assert_eq!(compiled.constants.get("BLOCK"), Some(&Constant::Int(64)));
        assert_eq!(
            (kernel.as_str(), entry.as_str(), *on, *aligned),
            ("scale", "scale", target, true)
        );
        assert_eq!((*grid, *threads, *shared), ([2, 2, 1], 128, 1000));
        use Value::{Address, F32, I32, I64};
        let scratch = Address(0);
        let wanted = [Address(4096), Address(512), I32(65), I64(128), F32(0.5), scratch, scratch];
        assert_eq!(values, &wanted);
    }
}

#[test]
fn operands_that_are_not_multiples_of_16_take_the_plain_image() {
    let (launcher, fake) = launcher(library(0, 4, ".u64"), 12, 0);
    for (x, rows, row, aligned) in
        [(64, 1, 16, true), (64, 3, 16, true), (72, 1, 16, false), (64, 1, 24, false)]
    {
        let before = plain_launches();
        scale(&launcher, x, rows, row).unwrap();
        assert_eq!(fake.take()[0].aligned, aligned, "x at {x}, rows of {row}");
        assert_eq!(plain_launches() - before, u64::from(!aligned), "x at {x}, rows of {row}");
    }
}

#[test]
fn a_kernel_without_a_plain_image_takes_aligned_operands_only() {
    let (launcher, fake) = launcher(with_images(0, 4, ".u64", &[true]), 9, 0);
    scale(&launcher, 64, 1, 16).unwrap();
    assert_eq!(fake.take().len(), 1);
    let message = scale(&launcher, 72, 1, 16).unwrap_err().to_string();
    assert!(message.ends_with("it was compiled for multiples of 16 only"), "{message}");
    assert!(fake.take().is_empty());
}

#[test]
fn shared_memory_is_asked_for_and_not_more_than_there_is() {
    // The recorder refuses a launch above 48 KB that was not allowed.
    let large = library(160 << 10, 8, ".u64");
    let (on_a100, fake) = launcher(large, 8, 0);
    scale(&on_a100, 64, 1, 16).unwrap();
    assert_eq!(fake.take()[0].shared, 160 << 10);
    let (on_ada, fake) = launcher(large, 8, 9);
    let message = scale(&on_ada, 64, 1, 16).unwrap_err().to_string();
    assert!(message.contains("it needs 163840 bytes of shared memory"), "{message}");
    assert!(fake.take().is_empty());
    let (many, _) = launcher(library(0, 64, ".u64"), 9, 0);
    let message = scale(&many, 64, 1, 16).unwrap_err().to_string();
    assert!(message.contains("2048 threads in a block, at most 1024"), "{message}");
}

#[test]
fn a_launch_without_blocks_does_nothing_and_one_with_too_many_is_refused() {
    let (launcher, fake) = launcher(library(0, 4, ".u64"), 9, 0);
    scale(&launcher, 64, 0, 16).unwrap();
    assert!(fake.take().is_empty());
    let message = scale(&launcher, 64, 1 << 31, 16).unwrap_err().to_string();
    assert!(message.contains("rows is 2147483648, beyond 32 bits"), "{message}");
    let message = scale(&launcher, 64, -64, 16).unwrap_err().to_string();
    assert!(message.contains("cdiv(-64, 64)"), "{message}");
}

#[test]
fn wrong_arguments_are_named() {
    let (launcher, fake) = launcher(library(0, 4, ".u64"), 9, 0);
    let constants = constants();
    let x = Pointer { address: 64, element: Element::Bf16 };
    let y = Pointer { address: 64, element: Element::F32 };
    let begun = || launcher.call("scale", &constants).pointer("x", x).pointer("y", y);
    let refused = |call: Call<'_>| call.run().unwrap_err().to_string();
    for (call, message) in [
        (begun(), "argument rows is missing"),
        (begun().int("row", 1), "argument rows is expected, got row"),
        (begun().float("rows", 1.0), "argument rows is i32, got Float(1.0)"),
        (
            begun().int("rows", 1).int("row", 1).float("by", 1.0).int("more", 1),
            "it takes no argument more",
        ),
        (
            launcher.call("scale", &constants).pointer("x", y).pointer("y", y),
            "was not compiled for [dtype bf16, BLOCK 64] and pointers to [F32, F32]",
        ),
        (launcher.call("turn", &[]), "kernel turn was not compiled for []"),
    ] {
        let got = refused(call);
        assert!(got.contains(message), "{got}");
    }
    assert!(fake.take().is_empty());
}

#[test]
fn a_manifest_that_differs_from_the_ptx_launches_nothing() {
    // The manifest says i64, the code 32 bits.
    let (launcher, fake) = launcher(library(0, 4, ".u32"), 9, 0);
    let message = scale(&launcher, 64, 1, 16).unwrap_err().to_string();
    assert!(message.contains("argument row is i64 in the manifest and"), "{message}");
    assert!(fake.take().is_empty());
}

#[test]
fn kernels_are_found_by_constants_and_elements() {
    let library = library(0, 4, ".u64");
    let at_least = |least| library.at_least("scale", &[("dtype", "bf16".into())], "BLOCK", least);
    assert_eq!((at_least(1), at_least(64), at_least(65)), (Some(64), Some(64), None));
    assert_eq!(library.at_least("scale", &[("dtype", "f32".into())], "BLOCK", 1), None);
    let elements = [Element::Bf16, Element::F32];
    assert!(library.find("scale", &[], &elements).is_some());
    assert!(library.find("scale", &[("BLOCK", 128.into())], &elements).is_none());
}

#[test]
fn a_number_of_warps_that_differs_from_the_ptx_launches_nothing() {
    // The PTX of this library requires 8 warps at most.
    let (launcher, _) = launcher(library(0, 16, ".u64"), 9, 0);
    let message = scale(&launcher, 64, 1, 16).unwrap_err().to_string();
    assert!(
        message.contains("the manifest has 16 warps, the PTX requires 256 threads"),
        "{message}"
    );
}

#[test]
fn a_gpu_before_8_0_is_refused_by_name() {
    let library = library(0, 4, ".u64");
    let message =
        Launcher::new(library, Box::new(Fake::new(library, 7, 0))).unwrap_err().to_string();
    assert_eq!(message, "no kernel runs on a recorder of 7.0: compute capability 7.0 is below 8.0");
}

/// The committed kernels.
#[test]
fn every_embedded_kernel_is_what_its_ptx_declares() {
    let library = Library::embedded().unwrap();
    for kernel in &library.manifest().kernels {
        for aligned in [true, false] {
            if kernel.image(Target::Ptx80, aligned).is_some() {
                library.check_params(kernel, aligned).unwrap();
            }
        }
        for image in &kernel.images {
            let code = library.bytes(image).unwrap();
            let is_ptx = image.target == Target::Ptx80;
            assert_eq!(
                code.starts_with(b"\x7fELF"),
                !is_ptx,
                "{} {}",
                kernel.describe(),
                image.target
            );
        }
        // Every name in its grid is a parameter or a constant.
        let value = |name: &str| {
            let named = kernel.params.iter().any(|param| param.name == name);
            (named || kernel.constants.contains_key(name)).then_some(64)
        };
        formula::blocks(&kernel.grid, &value).unwrap();
    }
}
