//! Bounded schemas from a seed: every kind of value within each other.

use serde_json::{Map, Value, json};

/// Numbers that look drawn, the same for the same seed (SplitMix64).
pub(crate) struct Seed(pub(crate) u64);

impl Seed {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// A schema whose parts lie within each other at most so deep.
pub(crate) fn schema(seed: &mut Seed, depth: usize) -> Value {
    let kinds = if depth == 0 { 7 } else { 11 };
    match seed.below(kinds) {
        0 => json!({"type": "boolean"}),
        1 => {
            let least = seed.below(2000) as i64 - 1000;
            json!({"type": "integer", "minimum": least, "maximum": least + seed.below(5000) as i64})
        }
        2 => json!({"type": "string", "maxLength": seed.below(9)}),
        3 => {
            let patterns = ["^[a-z]{1,5}$", "^(yes|no|maybe)$", "^[A-Z][0-9]{0,3}$", "^\\\\{0,2}[\\\"x]$", "^é{1,3}$"];
            json!({"type": "string", "pattern": patterns[seed.below(5) as usize]})
        }
        4 => {
            let values =
                [json!("a b"), json!(null), json!(-7), json!(1.5), json!([1, "x"]), json!({"k": true}), json!("é\n")];
            let from = seed.below(6) as usize;
            json!({"enum": values[from..]})
        }
        5 => json!({"const": ["only", seed.below(3)]}),
        6 => json!({"type": ["null", "boolean"]}),
        7 => {
            let least = seed.below(3);
            json!({"type": "array", "items": schema(seed, depth - 1), "minItems": least, "maxItems": least + seed.below(3)})
        }
        8 => json!({"anyOf": [schema(seed, depth - 1), schema(seed, depth - 1)]}),
        9 => {
            let first = schema(seed, depth - 1);
            json!({"type": "array", "prefixItems": [first, {"type": "boolean"}], "items": false, "minItems": 1})
        }
        _ => object(seed, depth),
    }
}

fn object(seed: &mut Seed, depth: usize) -> Value {
    let names = ["a", "name", "\"quoted\"", "ünï", "with blank", "type"];
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for name in names.iter().take(1 + seed.below(4) as usize) {
        properties.insert((*name).into(), schema(seed, depth - 1));
        if seed.below(2) == 0 {
            required.push(*name);
        }
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
