//! JSON -> other JSON: one node is changed, wherever it lies. Bytes that are changed blindly seldom parse.

use super::random::Random;
use super::steps;
use serde_json::{Value, json};

/// Changes a node of the JSON in `bytes`; `None` when it does not parse.
pub fn mutate(bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut root: Value = serde_json::from_slice(bytes).ok()?;
    // Those of a tokenizer say how a text is cut; the vocabulary has a hundred times as many nodes.
    if root.get("model").is_some() && !random.once_in(4) {
        steps::change(&mut root, random);
    } else {
        let other = random_node(&mut root, random).clone();
        change(random_node(&mut root, random), other, random);
    }
    serde_json::to_vec(&root).ok()
}

/// A node on a random way down, near the root as likely as deep inside.
pub fn random_node<'v>(mut node: &'v mut Value, random: &mut Random) -> &'v mut Value {
    loop {
        let children = match &*node {
            Value::Array(values) => values.len(),
            Value::Object(fields) => fields.len(),
            _ => 0,
        };
        if children == 0 || random.once_in(4) {
            return node;
        }
        let child = random.below(children);
        node = match node {
            Value::Array(values) => &mut values[child],
            Value::Object(fields) => match fields.values_mut().nth(child) {
                Some(value) => value,
                None => unreachable!("{child} is below {children}"),
            },
            _ => unreachable!("it has {children} children"),
        };
    }
}

/// Makes `node` something else; `other` is a node from elsewhere.
fn change(node: &mut Value, other: Value, random: &mut Random) {
    match node {
        Value::Array(values) if !values.is_empty() && random.yes() => {
            let index = random.below(values.len());
            match random.below(4) {
                0 => drop(values.remove(index)),
                1 => values.insert(index, values[index].clone()),
                2 => values.insert(index, other),
                _ => {
                    let with = random.below(values.len());
                    values.swap(index, with);
                }
            }
        }
        Value::Object(fields) if !fields.is_empty() && random.yes() => {
            let index = random.below(fields.len());
            let Some(key) = fields.keys().nth(index).cloned() else { return };
            match random.below(3) {
                0 => drop(fields.shift_remove(&key)),
                1 => drop(fields.insert(key, other)),
                _ => drop(fields.insert(steps::text(random), other)),
            }
        }
        Value::Number(number) if random.yes() => {
            let number = number.as_f64().unwrap_or_default();
            *node = match random.below(5) {
                0 => json!((number as i64).wrapping_sub(1)),
                1 => json!((number as i64).wrapping_add(1)),
                2 => json!((number as i64).wrapping_mul(2)),
                3 => json!(number / 3.0),
                _ => json!(-number),
            };
        }
        _ if random.once_in(4) => *node = other,
        _ => *node = odd_value(random),
    }
}

/// A value at an edge of what a reader expects.
fn odd_value(random: &mut Random) -> Value {
    match random.below(12) {
        0 => Value::Null,
        1 => json!(random.yes()),
        2 => json!([]),
        3 => json!({}),
        4 => json!(random.below(70)),
        5 => json!(*random.pick(&[1u64 << 31, (1 << 31) - 1, 1 << 32, (1 << 32) - 1, 1 << 53, 1 << 62, u64::MAX])),
        6 => json!(*random.pick(&[-1i64, i64::MIN])),
        7 => json!(*random.pick(&[0.0, -0.0, 0.5, 1e-45, 1e-300, 1e38, 1e39, 1e300, f64::MAX, 1.000_000_1])),
        8 => json!(steps::pattern(random)),
        9 => (0..random.below(100)).fold(json!(1), |inner, _| json!([inner])),
        _ => json!(steps::text(random)),
    }
}
