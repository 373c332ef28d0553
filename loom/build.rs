//! Chooses loom's types in `crates/kernels/src/threads/sync.rs`.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rustc-cfg=loom");
}
