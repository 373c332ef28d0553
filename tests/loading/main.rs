//! Files -> models: what is read, copied, cancelled and refused.

mod adapters;
mod classic;
#[path = "../common/mod.rs"]
mod common;
mod control;
mod expert_layouts;
mod new_family;
mod no_cast;
mod other_names;
mod resident;
mod stack;
mod text_of_multimodal;
