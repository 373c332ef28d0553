//! One file for each reader.

mod config;
mod diagnose;
mod gguf;
mod grammar;
mod load;
mod pixels;
mod requests;
mod safetensors;
mod session;
mod tokenizer;

use crate::common::{Target, any_bytes};

const fn of_bytes(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run, mutate: any_bytes, longest: 1 << 16 }
}

pub const TARGETS: [Target; 10] = [
    of_bytes("gguf", gguf::run),
    of_bytes("safetensors", safetensors::run),
    of_bytes("config", config::run),
    of_bytes("diagnose", diagnose::run),
    Target { mutate: tokenizer::mutate, ..of_bytes("tokenizer", tokenizer::run) },
    Target { mutate: load::mutate, longest: 1 << 18, ..of_bytes("load", load::run) },
    Target { mutate: session::mutate, ..of_bytes("session", session::run) },
    of_bytes("pixels", pixels::run),
    of_bytes("requests", requests::run),
    Target { mutate: grammar::mutate, ..of_bytes("grammar", grammar::run) },
];
