//! The standard definitions of the canonc language, as text.
//!
//! `canonc-compiler` embeds them; `canonc show std` lists them. This crate contains no code.
//!
//! ```
//! let (name, text) = standard::FILES[1];
//! assert_eq!(name, "std/attention.canon");
//! assert!(text.contains("mixer"));
//! ```
#![warn(missing_docs)]

/// Each file's name, as `use` and messages give it, and its text.
pub const FILES: [(&str, &str); 28] = [
    ("std/alibi.canon", include_str!("alibi.canon")),
    ("std/attention.canon", include_str!("attention.canon")),
    ("std/decoder.canon", include_str!("decoder.canon")),
    ("std/delta_product.canon", include_str!("delta_product.canon")),
    ("std/differential.canon", include_str!("differential.canon")),
    ("std/dropout.canon", include_str!("dropout.canon")),
    ("std/gated_deltanet.canon", include_str!("gated_deltanet.canon")),
    ("std/geglu.canon", include_str!("geglu.canon")),
    ("std/gla.canon", include_str!("gla.canon")),
    ("std/grouped_attention.canon", include_str!("grouped_attention.canon")),
    ("std/gsa.canon", include_str!("gsa.canon")),
    ("std/head.canon", include_str!("head.canon")),
    ("std/hgrn2.canon", include_str!("hgrn2.canon")),
    ("std/hyper.canon", include_str!("hyper.canon")),
    ("std/init.canon", include_str!("init.canon")),
    ("std/kda.canon", include_str!("kda.canon")),
    ("std/latent_attention.canon", include_str!("latent_attention.canon")),
    ("std/mamba2.canon", include_str!("mamba2.canon")),
    ("std/moe.canon", include_str!("moe.canon")),
    ("std/ngpt.canon", include_str!("ngpt.canon")),
    ("std/ngram.canon", include_str!("ngram.canon")),
    ("std/norm.canon", include_str!("norm.canon")),
    ("std/retention.canon", include_str!("retention.canon")),
    ("std/rwkv6.canon", include_str!("rwkv6.canon")),
    ("std/rwkv7.canon", include_str!("rwkv7.canon")),
    ("std/simple_gla.canon", include_str!("simple_gla.canon")),
    ("std/swiglu.canon", include_str!("swiglu.canon")),
    ("std/value_residual.canon", include_str!("value_residual.canon")),
];
