//! What something allocates, by an allocator that counts: one test at a time.

mod adapter_memory;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/counting.rs"]
mod counting;
mod request_memory;
mod step_memory;
mod tokenizer_growth;
mod vision_memory;
