//! The methods that strings, lists and maps have in Python.

use super::limits::Budget;
use super::marks::{self, Bare};
use super::python::{self, Text};
use super::values::{PassingKind, ensure, invalid, items};
use minijinja::formatting::FormatStyle;
use minijinja::value::{Kwargs, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind};

/// Calls `value.method(args)`. Methods that are not listed here, such as those that would change a value, are unknown.
pub(super) fn call(budget: &Budget, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let (ValueKind::Map, "get", Some(object)) = (value.kind(), method, value.as_object()) {
        // This inspects only one item.
        let (key, default): (&Value, Option<Value>) = from_args(args)?;
        budget.weigh(key)?;
        return Ok(object.get_value(&marks::unmarked(key)).or(default).unwrap_or_else(|| Value::from(())));
    }
    budget.weigh(value)?;
    args.iter().try_for_each(|arg| budget.weigh(arg))?;
    let called = match (value.kind(), value.as_str()) {
        (_, Some(text)) => of_string(budget, text, method, args),
        (ValueKind::Map, _) => return of_map(budget, value, method, args),
        (ValueKind::Seq, _) => of_list(value, method, args),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }?;
    budget.weigh(&called).map(|()| called)
}

fn of_string(budget: &Budget, given: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let bare = Bare::new(given, budget)?;
    let text = bare.text();
    let back = |part: &str| Value::from(bare.back(part));
    // Arguments that are written into the result keep their marks.
    let writes = matches!(method, "replace" | "join" | "ljust" | "rjust" | "center" | "format");
    let looked_at: Vec<Value> =
        args.iter().map(|arg| if writes { arg.clone() } else { marks::unmarked(arg) }).collect();
    let args = looked_at.as_slice();
    Ok(match method {
        "upper" => plain(args, || marks::recased(given, str::to_uppercase))?,
        "lower" => plain(args, || marks::recased(given, str::to_lowercase))?,
        "title" => plain(args, || marks::recased(given, python::titled))?,
        "capitalize" => plain(args, || marks::recased(given, python::capitalized))?,
        "isspace" => plain(args, || !text.is_empty() && text.chars().all(python::is_space))?,
        "isascii" => plain(args, || text.is_ascii())?,
        "isalpha" => plain(args, || !text.is_empty() && text.chars().all(char::is_alphabetic))?,
        "isalnum" => plain(args, || !text.is_empty() && text.chars().all(char::is_alphanumeric))?,
        "isupper" => plain(args, || text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase))?,
        "islower" => plain(args, || text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase))?,
        "isdigit" | "isdecimal" | "isnumeric" => {
            let is_other = |character: char| character.is_ascii() && !character.is_ascii_digit();
            ensure(text.is_ascii() || text.chars().any(is_other), "only digits of ASCII are told from others")?;
            plain(args, || !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))?
        }
        "strip" | "lstrip" | "rstrip" => {
            let (characters,): (Option<&str>,) = from_args(args)?;
            Value::from(python::stripped(given, characters, method != "rstrip", method != "lstrip"))
        }
        "removeprefix" | "removesuffix" => {
            let (part,): (&str,) = from_args(args)?;
            let rest = if method == "removeprefix" { text.strip_prefix(part) } else { text.strip_suffix(part) };
            back(rest.unwrap_or(text))
        }
        "startswith" | "endswith" => {
            let (parts,): (&Value,) = from_args(args)?;
            let is = |part: &str| if method == "endswith" { text.ends_with(part) } else { text.starts_with(part) };
            let parts = if parts.is_tuple() { items(parts)? } else { vec![parts.clone()] };
            let parts: Option<Vec<&str>> = parts.iter().map(Value::as_str).collect();
            let parts = parts.ok_or_else(|| invalid("the argument is a string or a tuple of strings"))?;
            Value::from(parts.into_iter().any(is))
        }
        "find" | "rfind" | "index" | "rindex" => {
            let (part,): (&str,) = from_args(args)?;
            let at = if method.starts_with('r') { text.rfind(part) } else { text.find(part) };
            match at {
                Some(at) => Value::from(text[..at].chars().count()),
                None if method.ends_with("find") => Value::from(-1),
                None => return Err(invalid("the part is not found")),
            }
        }
        "count" => {
            let (part,): (&str,) = from_args(args)?;
            Value::from(text.matches(part).count())
        }
        "replace" => {
            let (old, new, count, named): (&str, &str, Option<i64>, Kwargs) = from_args(args)?;
            let count = count.or(named.get("count")?);
            named.assert_all_used()?;
            Value::from(python::replaced(given, old, new, count, budget)?)
        }
        "split" | "rsplit" => split(text, method, args)?.into_iter().map(back).collect(),
        "splitlines" => {
            let (ends, named): (Option<bool>, Kwargs) = from_args(args)?;
            let ends = ends.or(named.get("keepends")?).unwrap_or(false);
            named.assert_all_used()?;
            python::lines(given, ends).into_iter().map(Value::from).collect()
        }
        "partition" | "rpartition" => {
            let (part,): (&str,) = from_args(args)?;
            ensure(!part.is_empty(), "an empty text separates nothing")?;
            let parts = match (method, text.split_once(part), text.rsplit_once(part)) {
                ("partition", Some((before, after)), _) | ("rpartition", _, Some((before, after))) => {
                    [before, &text[before.len()..before.len() + part.len()], after]
                }
                ("partition", ..) => [text, "", ""],
                _ => ["", "", text],
            };
            Value::from(Tuple::from(parts.map(back)))
        }
        "join" => {
            let (parts,): (&Value,) = from_args(args)?;
            let parts = items(parts)?;
            ensure(parts.iter().all(|part| part.as_str().is_some()), "only strings are joined")?;
            Value::from(python::joined(&parts, given, budget)?)
        }
        "ljust" | "rjust" | "center" | "zfill" => padded(budget, given, method, args)?,
        "format" => Value::from(python::formatted(FormatStyle::StrFormat, given, args, budget)?),
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    })
}

/// The result of a method without arguments.
fn plain<T: Into<Value>>(args: &[Value], answer: impl Fn() -> T) -> Result<Value, Error> {
    let () = from_args(args)?;
    Ok(answer().into())
}

/// `text.split(sep=None, maxsplit=-1)`, from either end.
fn split<'t>(text: &'t str, method: &str, args: &[Value]) -> Result<Vec<&'t str>, Error> {
    let (separator, most, named): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.or(named.get("sep")?);
    let most = most.or(named.get("maxsplit")?).and_then(|most| usize::try_from(most).ok());
    named.assert_all_used()?;
    let from_end = method == "rsplit";
    let mut parts: Vec<&str> = match separator {
        Some("") => return Err(invalid("an empty text separates nothing")),
        Some(separator) => {
            let pieces = most.unwrap_or(usize::MAX).saturating_add(1);
            if from_end { text.rsplitn(pieces, separator).collect() } else { text.splitn(pieces, separator).collect() }
        }
        None => words(text, most.unwrap_or(usize::MAX), from_end),
    };
    if from_end {
        parts.reverse();
    }
    Ok(parts)
}

/// The words between white space. After `most` words the rest stays as it is; the last words come first if `from_end`.
fn words(text: &str, most: usize, from_end: bool) -> Vec<&str> {
    let (mut words, mut rest) = (Vec::new(), text);
    loop {
        rest =
            if from_end { rest.trim_end_matches(python::is_space) } else { rest.trim_start_matches(python::is_space) };
        if rest.is_empty() {
            return words;
        }
        let space = if from_end { rest.rfind(python::is_space) } else { rest.find(python::is_space) };
        let (word, others) = match space.filter(|_| words.len() < most) {
            None => (rest, ""),
            Some(at) if from_end => (rest[at..].trim_start_matches(python::is_space), &rest[..at]),
            Some(at) => rest.split_at(at),
        };
        words.push(word);
        rest = others;
    }
}

fn padded(budget: &Budget, text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let fill = fill.unwrap_or(if method == "zfill" { "0" } else { " " });
    let is_one = fill.chars().count() == 1 && (method != "zfill" || args.len() <= 1);
    ensure(is_one, "texts are filled with one character")?;
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(text.chars().count());
    budget.spend_text(missing.saturating_mul(fill.len()))?;
    let (sign, text) = match text.strip_prefix(|first| matches!(marks::bare_char(first), '+' | '-')) {
        Some(digits) if method == "zfill" => text.split_at(text.len() - digits.len()),
        _ => ("", text),
    };
    let before = match method {
        "ljust" => 0,
        // If the padding is odd, its larger half is in front if the width is odd.
        "center" => missing / 2 + (missing & usize::try_from(width).unwrap_or(0) & 1),
        _ => missing,
    };
    let mut filled = Text::new(budget);
    for part in [sign, &fill.repeat(before), text, &fill.repeat(missing - before)] {
        filled.push(part)?;
    }
    Ok(Value::from(filled.into_string()))
}

fn of_map(budget: &Budget, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let () = from_args(args)?;
    let pairs = value.as_object().and_then(|object| object.try_iter_pairs()).into_iter().flatten();
    let view: Value = match method {
        "keys" => pairs.map(|(key, _)| key).collect(),
        "values" => pairs.map(|(_, item)| item).collect(),
        "items" => pairs.map(|(key, item)| Value::from(Tuple::from([key, item]))).collect(),
        "copy" => return Ok(value.clone()),
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    };
    budget.weigh(&view)?;
    budget.pass(view, PassingKind::View)
}

fn of_list(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if !matches!(method, "count" | "index") {
        return Err(Error::from(ErrorKind::UnknownMethod));
    }
    let (wanted,): (&Value,) = from_args(args)?;
    let items = items(value)?;
    let wanted = marks::unmarked(wanted);
    let mut found = items.iter().enumerate().filter(|(_, item)| marks::unmarked(item) == wanted);
    if method == "count" {
        return Ok(Value::from(found.count()));
    }
    let (index, _) = found.next().ok_or_else(|| invalid("the item is not in the list"))?;
    Ok(Value::from(index))
}
