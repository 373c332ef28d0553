//! `<｜tool▁call▁begin｜>`, the name, `<｜tool▁sep｜>`, the arguments, `<｜tool▁call▁end｜>`.

use super::{Description, Part, deepseek_v3};

pub(super) const FORMAT: Description = Description {
    name: "deepseek_v31",
    shown_by: &[&["<｜tool▁call▁begin｜>"]],
    call: &[Part::Name("", ""), Part::Mark(deepseek_v3::SEPARATOR), Part::Json],
    several: Description::JSON.several,
    ..deepseek_v3::FORMAT
};
