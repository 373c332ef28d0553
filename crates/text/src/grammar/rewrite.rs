//! A JSON schema -> one that llguidance enforces as the specification says.
//!
//! Patterns are those of ECMA 262, times and dates those of RFC 3339, and integers keep all their digits.

use super::schema::values;
use regex_syntax::ast::{self, Ast, ClassPerl, ClassPerlKind, ClassSetItem, Span};
use regex_syntax::hir::{Class, HirKind};
use serde_json::{Map, Value};

/// Keywords whose values are not schemas.
const VALUES: [&str; 4] = ["const", "enum", "default", "examples"];

/// Keywords that hold schemas by name.
const MAPS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// The keywords for bounds of numbers, and whether they are lower bounds.
const BOUNDS: [(&str, bool); 4] =
    [("minimum", true), ("exclusiveMinimum", true), ("maximum", false), ("exclusiveMaximum", false)];

/// From here on doubles cannot distinguish neighboring integers, and llguidance uses the largest integer of 64 bits.
const LARGEST: f64 = 9.2e18;

/// The least integer of 64 bits, whose negation does not fit.
const LOWEST: f64 = i64::MIN as f64;

/// `\s` of ECMA 262, for use within brackets.
const SPACE: &str = r"\t-\r\x20\u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";

/// A date of RFC 3339, with the 29th of February only in leap years.
const DATE: &str = "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)\
    |02-(?:0[1-9]|1[0-9]|2[0-8]))\
    |(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";

/// A time of RFC 3339, without leap seconds, which are allowed only at the end of some days.
const TIME: &str = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?\
    (?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";

/// The pattern of a format that llguidance implements differently from RFC 3339.
fn pattern_of(format: &str) -> Option<String> {
    match format {
        "date" => Some(format!("^{DATE}$")),
        "time" => Some(format!("^{TIME}$")),
        "date-time" => Some(format!("^{DATE}[tT]{TIME}$")),
        _ => None,
    }
}

/// A keyword of `schema` whose value cannot be kept: a number of `const` or `enum` that no double holds, as
/// llguidance would use the nearest one, or an upper bound at the end of the integers of 64 bits, which it negates.
pub(super) fn unkept(schema: &Map<String, Value>) -> Option<(&'static str, String)> {
    let least = LOWEST.next_up() as i64;
    let low = |bound: &Value| bound.as_f64().is_some_and(|bound| bound <= LOWEST);
    let bound = |key| schema.get(key).filter(|bound| low(bound)).map(|bound| (key, bound));
    if let Some((key, bound)) = ["maximum", "exclusiveMaximum"].into_iter().find_map(bound) {
        return Some((key, format!("{bound} is not supported, expected at least {least}")));
    }
    let key = ["const", "enum"].into_iter().find(|key| schema.get(*key).is_some_and(inexact))?;
    Some((key, "an integer beyond 9007199254740992 is not kept exactly, expected one within".into()))
}

/// Whether `value` has an integer that no double holds, or the least one of 64 bits.
fn inexact(value: &Value) -> bool {
    let is_inexact = |integer: i128| integer as f64 as i128 != integer || integer as f64 <= LOWEST;
    values(value).filter_map(|value| integer(value.as_number()?)).any(is_inexact)
}

fn integer(number: &serde_json::Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// Rewrites `schema` so that llguidance enforces it as the specification says.
pub(super) fn rewrite(schema: &mut Value) {
    match schema {
        Value::Array(list) => list.iter_mut().for_each(rewrite),
        Value::Object(object) => {
            keywords(object);
            for (key, value) in object.iter_mut() {
                match value {
                    Value::Object(map) if MAPS.contains(&&**key) => map.values_mut().for_each(rewrite),
                    value if !VALUES.contains(&&**key) => rewrite(value),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// Rewrites the keywords of a schema that are no schemas.
fn keywords(schema: &mut Map<String, Value>) {
    if let Some(Value::String(pattern)) = schema.get_mut("pattern") {
        *pattern = ecma(pattern);
    }
    if let Some(Value::Object(map)) = schema.get_mut("patternProperties") {
        let rewritten = std::mem::take(map).into_iter().map(|(pattern, value)| (ecma(&pattern), value));
        map.extend(rewritten);
    }
    if let Some(pattern) = schema.get("format").and_then(Value::as_str).and_then(pattern_of) {
        schema.remove("format");
        match (schema.contains_key("pattern"), schema.get_mut("allOf")) {
            (false, _) => drop(schema.insert("pattern".into(), pattern.into())),
            (true, Some(Value::Array(all))) => all.push(serde_json::json!({ "pattern": pattern })),
            (true, _) => drop(schema.insert("allOf".into(), serde_json::json!([{ "pattern": pattern }]))),
        }
    }
    for (key, is_lower) in BOUNDS {
        let Some(Value::Number(bound)) = schema.get_mut(key) else { continue };
        let Some(exact) = integer(bound) else { continue };
        let nearest = exact as f64;
        let inward = match is_lower {
            true if (nearest as i128) < exact => nearest.next_up(),
            false if nearest as i128 > exact => nearest.next_down(),
            _ => continue,
        };
        // The bounds are whole numbers here, within 64 bits.
        if inward.abs() < LARGEST {
            *bound = (inward as i64).into();
        }
    }
}

/// `pattern` with the classes of ECMA 262; unchanged if it is not a regular expression.
fn ecma(pattern: &str) -> String {
    let spaced = edited(pattern, |class| match class {
        Found::Perl(ClassPerl { kind: ClassPerlKind::Space, negated, .. }) => Some(perl(SPACE, *negated)),
        _ => None,
    });
    edited(&spaced, |class| match class {
        Found::Bracketed(text) if loses_quotes(text) => Some(format!(r"[{text}&&[^\x00]]")),
        _ => None,
    })
}

fn perl(class: &str, negated: bool) -> String {
    format!("[{}{class}]", if negated { "^" } else { "" })
}

/// Whether a class has NUL but lacks the quotation mark or the backslash. If a class has all control characters, the quoting
/// for JSON (derivre) allows both of these with their escapes; without NUL it does not.
fn loses_quotes(class: &str) -> bool {
    let ascii = edited(class, |class| match class {
        Found::Perl(ClassPerl { kind, negated, .. }) => Some(match kind {
            ClassPerlKind::Digit => perl("0-9", *negated),
            ClassPerlKind::Word => perl("0-9A-Za-z_", *negated),
            ClassPerlKind::Space => perl(SPACE, *negated),
        }),
        Found::Bracketed(_) => None,
    });
    let Ok(hir) = regex_syntax::Parser::new().parse(&ascii) else { return false };
    let HirKind::Class(Class::Unicode(class)) = hir.kind() else { return false };
    let has = |sign: char| class.iter().any(|range| (range.start()..=range.end()).contains(&sign));
    has('\0') && !(has('"') && has('\\'))
}

/// A class in a regular expression.
enum Found<'a> {
    Perl(&'a ClassPerl),
    /// A class in brackets that is in no other, as it is written.
    Bracketed(&'a str),
}

/// `pattern` with its classes replaced by the results of `edit`.
fn edited(pattern: &str, edit: impl Fn(Found<'_>) -> Option<String>) -> String {
    let Ok(parsed) = ast::parse::Parser::new().parse(pattern) else { return pattern.to_owned() };
    // The visitor cannot fail.
    let edits = ast::visit(&parsed, Edits { pattern, edit, edits: Vec::new() }).unwrap_or_default();
    let (mut text, mut from) = (String::with_capacity(pattern.len()), 0);
    for (span, new) in edits {
        text.push_str(&pattern[from..span.start.offset]);
        text.push_str(&new);
        from = span.end.offset;
    }
    text + &pattern[from..]
}

/// Collects the replacements of classes, in their order.
struct Edits<'a, F> {
    pattern: &'a str,
    edit: F,
    edits: Vec<(Span, String)>,
}

impl<F: Fn(Found<'_>) -> Option<String>> Edits<'_, F> {
    fn add(&mut self, span: Span, found: Found<'_>) {
        self.edits.extend((self.edit)(found).map(|new| (span, new)));
    }
}

impl<F: Fn(Found<'_>) -> Option<String>> ast::Visitor for Edits<'_, F> {
    type Output = Vec<(Span, String)>;
    type Err = ();

    fn finish(self) -> Result<Self::Output, ()> {
        Ok(self.edits)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), ()> {
        match ast {
            Ast::ClassPerl(class) => self.add(class.span, Found::Perl(class)),
            Ast::ClassBracketed(class) => {
                let pattern = self.pattern;
                self.add(class.span, Found::Bracketed(&pattern[class.span.start.offset..class.span.end.offset]));
            }
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), ()> {
        if let ClassSetItem::Perl(class) = item {
            self.add(class.span, Found::Perl(class));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::check;
    use super::*;
    use crate::error::GrammarError;
    use serde_json::json;

    #[test]
    fn classes_are_those_of_ecma_262() {
        for (pattern, expected) in [
            (r"^\d+\w?[^a]$", r"^\d+\w?[^a]$".to_owned()),
            (r"^\s\S[a\s]$", format!("^[{SPACE}][^{SPACE}][a[{SPACE}]]$")),
            ("^[^\"]*$", "^[[^\"]&&[^\\x00]]*$".to_owned()),
            (r"^[\x00-\x1f]{2}$", r"^[[\x00-\x1f]&&[^\x00]]{2}$".to_owned()),
            (r"[\W]|[\x01-\x1f]|.", r"[\W]|[\x01-\x1f]|.".to_owned()),
            ("(", "(".to_owned()),
        ] {
            assert_eq!(ecma(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn bounds_move_inwards_and_names_of_properties_stay() {
        let beyond = 9_007_199_254_740_993_i64;
        let mut schema = json!({
            "minimum": beyond, "maximum": beyond + 2, "exclusiveMaximum": 5, "default": {"minimum": beyond},
            "properties": {"pattern": {"format": "date", "pattern": "x"}, "const": {"pattern": r"\s"}},
        });
        rewrite(&mut schema);
        assert_eq!((&schema["minimum"], &schema["maximum"]), (&json!(beyond + 1), &json!(beyond + 1)));
        assert_eq!((&schema["exclusiveMaximum"], &schema["default"]["minimum"]), (&json!(5), &json!(beyond)));
        assert_eq!(schema["properties"]["const"]["pattern"], json!(format!("[{SPACE}]")));
        let both = &schema["properties"]["pattern"];
        assert_eq!((&both["pattern"], &both["allOf"][0]["pattern"]), (&json!("x"), &json!(pattern_of("date"))));
    }

    #[test]
    fn what_is_not_kept_exactly_has_a_place() {
        let beyond = 9_007_199_254_740_993_i64;
        let given = json!({"properties": {"const": {"enum": [1, [beyond]]}}});
        match check(&given) {
            Err(GrammarError::Schema { place, .. }) => assert_eq!(place, "/properties/const/enum"),
            other => panic!("{other:?}"),
        }
        check(&json!({"const": beyond - 1, "default": beyond, "maximum": beyond})).unwrap();
    }
}
