//! Tools and the format of calls -> the grammar of an answer that calls tools.

use super::ToolChoice;
use crate::error::{Error, ToolError};
use crate::grammar::{DEFINITIONS, Grammar, closed, values, with_definitions};
use crate::tokenizer::Tokenizer;
use model_factory_format::tool_calls::{Description, Notation, Part, Several, Tool, ToolCallFormat, takes};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;

/// The most nested schemas in a notation other than JSON.
const LEVELS: usize = 32;

/// The grammar that `choice` asks for; `None` if the model is free. If calls are not required and there is
/// an `other` grammar, an answer matches it or is calls.
///
/// # Errors
/// `Tool` for a tool that does not exist, or if no call can be held to its schema; `Grammar` for a schema that cannot be enforced.
pub(crate) fn grammar(
    choice: &ToolChoice,
    format: ToolCallFormat,
    tools: &[Tool],
    tokenizer: &Tokenizer,
    other: Option<&Grammar>,
) -> Result<Option<Grammar>, Error> {
    let chosen: Vec<&Tool> = match choice {
        ToolChoice::None => return Ok(None),
        ToolChoice::Auto if other.is_none() => return Ok(None),
        ToolChoice::Auto | ToolChoice::Strict | ToolChoice::Required => tools.iter().collect(),
        ToolChoice::Named(name) => tools.iter().filter(|tool| tool.name == *name).collect(),
    };
    if let (true, ToolChoice::Named(name)) = (chosen.is_empty(), choice) {
        let known = tools.iter().map(|tool| tool.name.clone()).collect();
        return Err(ToolError::Unknown { name: name.clone(), known }.into());
    }
    let mut schemas: Vec<(String, Value)> =
        chosen.iter().map(|tool| (tool.name.clone(), closed(tool.parameters.clone()))).collect();
    for (tool, schema) in &schemas {
        check(tool, schema, format)?;
    }
    let other = other.filter(|_| matches!(choice, ToolChoice::Auto | ToolChoice::Strict));
    let other_text = other.map(|other| other.in_lark().ok_or(ToolError::WithGrammar)).transpose()?;
    let mut lark = Lark {
        rules: String::new(),
        names: 0,
        format,
        tokenizer,
        tool: "",
        root: &Value::Null,
        known: HashMap::new(),
        is_json: other.is_some(),
    };
    let calls: Result<Vec<String>, Error> = schemas.iter().map(|(name, schema)| lark.call(name, schema)).collect();
    let call = lark.rule(&calls?.join(" | "));
    let answer = lark.answer(&call, choice, other_text.as_deref())?;
    lark.rules.insert_str(0, &format!("start: {answer}\nTEXT: /(?s:.+)/\n"));
    let rules = lark.rules;
    schemas.extend(other.and_then(Grammar::schema).map(|schema| (String::new(), schema.clone())));
    Ok(Some(Grammar::calls(rules, schemas)))
}

/// A Lark grammar under construction.
struct Lark<'a> {
    rules: String,
    names: usize,
    format: ToolCallFormat,
    tokenizer: &'a Tokenizer,
    /// The tool whose call is being written, and the schema of its arguments.
    tool: &'a str,
    root: &'a Value,
    /// Rules of the definitions that its schema refers to.
    known: HashMap<String, String>,
    /// Whether the answer may be JSON other than a call. A call without a mark is then JSON with the same blanks, so
    /// that both may begin alike.
    is_json: bool,
}

/// Checks that calls of `tool` with this schema can be written in `format`, and parsed.
fn check(tool: &str, schema: &Value, format: ToolCallFormat) -> Result<(), ToolError> {
    let found = schema.get("type").unwrap_or(schema);
    if found != "object" {
        return Err(ToolError::NotObject { tool: tool.into(), found: found.to_string() });
    }
    let has = |is: fn(&Part) -> bool| format.description().call.iter().any(is);
    let has_names = has(|part| matches!(part, Part::Each(..) | Part::Pairs(_)));
    let parameters = properties(schema).into_iter().map(|(name, ..)| name).filter(|_| has_names);
    let names = [tool].into_iter().filter(|_| !has(|part| matches!(part, Part::JsonName(..)))).chain(parameters);
    match names.into_iter().find(|name| !is_plain(name)) {
        Some(name) => Err(ToolError::Name { tool: tool.into(), name: name.into(), format }),
        None => Ok(()),
    }
}

/// `text` as a Lark literal.
fn text(text: &str) -> String {
    Value::from(text).to_string()
}

impl<'a> Lark<'a> {
    /// Adds a rule for this expression and returns its name.
    fn rule(&mut self, expression: &str) -> String {
        let name = self.name();
        self.define(&name, expression);
        name
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("r{}", self.names)
    }

    fn define(&mut self, name: &str, expression: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.rules, "{name}: {expression}");
    }

    /// A rule for a text that ends with the first `suffix`.
    fn until(&mut self, suffix: &str) -> String {
        let name = self.name();
        self.define(&format!("{name}[suffix={}]", text(suffix)), "/(?s:.*)/");
        name
    }

    /// The token of a mark, or its letters if the vocabulary has no such token.
    fn mark(&self, mark: &str) -> String {
        self.tokenizer.added_token(mark).map_or_else(|| text(mark), |id| format!("<[{id}]>"))
    }

    /// One call of the tool `name`, without its opening and closing marks.
    fn call(&mut self, name: &'a str, schema: &'a Value) -> Result<String, Error> {
        (self.tool, self.root) = (name, schema);
        self.known.clear();
        if self.is_json && matches!(self.format.description().several, Several::Bare) {
            return Ok(Grammar::embedded(&self.call_schema()?));
        }
        let mut written = Vec::new();
        for part in self.format.description().call {
            written.push(match *part {
                Part::Text(letters) => text(letters),
                Part::Name(before, after) => text(&format!("{before}{name}{after}")),
                Part::JsonName(before, after) => text(&format!("{before}{}{after}", text(name))),
                Part::Mark(mark) => self.mark(mark),
                Part::Id => ID.to_owned(),
                Part::OptionalId(token) => match self.tokenizer.added_token(token) {
                    Some(token) => format!("(<[{token}]> {ID})?"),
                    None => continue,
                },
                Part::Json => Grammar::embedded(schema),
                Part::Each(open, name_end, close) => self.parameters(schema, [open, name_end, close])?,
                Part::Pairs(notation) => self.pairs(notation, schema, 0)?,
            });
        }
        Ok(written.join(" "))
    }

    /// The schema of a call, `{"name": .., "parameters": ..}`.
    fn call_schema(&self) -> Result<Value, Error> {
        let mut parameters = self.root.clone();
        let mut schema = json!({ "type": "object", "required": ["name", "parameters"], "additionalProperties": false });
        for key in DEFINITIONS {
            if let Some(value) = parameters.as_object_mut().and_then(|parameters| parameters.remove(key)) {
                schema[key] = value;
            }
        }
        let elsewhere = |to: &str| !(to.starts_with("#/$defs/") || to.starts_with("#/definitions/"));
        if values(self.root).filter_map(|part| part.get("$ref")?.as_str()).any(elsewhere) {
            return Err(self.refused("a reference leads elsewhere than into its definitions"));
        }
        schema["properties"] = json!({ "name": { "const": self.tool }, "parameters": parameters });
        Ok(schema)
    }

    /// The answer that `choice` asks for: this `call`, or the `other` one.
    fn answer(&mut self, call: &str, choice: &ToolChoice, other: Option<&str>) -> Result<String, Error> {
        let Description { opens, closes, frames, several, .. } = self.format.description();
        let mark = |mark: Option<&&str>| mark.map(|mark| self.mark(mark)).unwrap_or_default();
        let (open, close) = (mark(opens.first()), mark(closes.first()));
        let literal = |letters: &str| if letters.is_empty() { String::new() } else { text(letters) };
        let many = |part: &str, between: &str| match choice {
            ToolChoice::Named(_) => part.to_owned(),
            _ => format!("{part} ({} {part})*", literal(between)),
        };
        let calls = match *several {
            Several::Each { between } => many(&format!("{open} {call} {close}"), between),
            Several::List { begin, between, end, spells_close } => {
                let is_written = |mark: &&&str| spells_close || self.tokenizer.added_token(mark).is_some();
                let close = mark(closes.first().filter(is_written));
                format!("{open} {} {} {} {close}", literal(begin), many(call, between), literal(end))
            }
            Several::Bare => call.to_owned(),
            Several::Messages => return Ok(self.messages(call, choice, other)),
        };
        let calls = match frames {
            Some([begin, end]) => format!("{} {calls} {}", self.mark(begin), self.mark(end)),
            None => calls,
        };
        if let Some(other) = other {
            return Ok(format!("{} | {}", self.rule(&calls), self.rule(other)));
        }
        if *choice != ToolChoice::Strict {
            return Ok(calls);
        }
        if matches!(several, Several::Bare) {
            // A call is a whole answer that begins with a brace, so any other answer is text.
            return Ok(format!("{} | OTHER?\nOTHER: /(?s:\\s*[^\\s{{].*)/", self.rule(&calls)));
        }
        // Text and call can only be distinguished if the mark is a token, not if it is spelled in letters.
        let opener = frames.as_ref().map(|[begin, _]| begin).or(opens.first());
        let is_token = opener.is_some_and(|mark| self.tokenizer.added_token(mark).is_some());
        if !is_token {
            return Err(ToolError::NotStrict { format: self.format }.into());
        }
        let calls = self.rule(&calls);
        Ok(format!("TEXT? ({calls} TEXT?)*"))
    }

    /// gpt-oss: messages of analysis, then a call or, if `choice` leaves that open, the answer.
    fn messages(&mut self, call: &str, choice: &ToolChoice, other: Option<&str>) -> String {
        let [start, channel, message, end] =
            ["<|start|>", "<|channel|>", "<|message|>", "<|end|>"].map(|mark| self.mark(mark));
        let analysis = format!("({channel} \"analysis\" {message} TEXT {end} {start} \"assistant\")*");
        match (choice, other) {
            (_, Some(other)) => format!("{analysis} ({call} | {channel} \"final\" {message} {other})"),
            (ToolChoice::Strict, None) => {
                let before =
                    format!("({channel} (\"analysis\" | \"commentary\") {message} TEXT {end} {start} \"assistant\")*");
                format!("{before} ({call} | {channel} (\"final\" | \"commentary\") {message} TEXT?)")
            }
            (_, None) => format!("{analysis} {call}"),
        }
    }

    /// The arguments of a call: the texts of `around` stand before and after each name and after its value. Strings are written
    /// as they are, other values as JSON.
    fn parameters(&mut self, schema: &Value, around: [&str; 3]) -> Result<String, Error> {
        let [open, name_end, close] = around;
        let mut all = Vec::new();
        for (name, property, required) in properties(schema) {
            let head = text(&format!("{open}{name}{name_end}"));
            let value = match options(property) {
                Some(options) if options.is_empty() => return Err(self.refused("a list of values is empty")),
                Some(options) if options.iter().all(Value::is_string) => {
                    let options: Vec<String> = options.iter().filter_map(Value::as_str).map(text).collect();
                    format!("({}) {}", options.join(" | "), text(close))
                }
                _ if takes(property, "string") => self.until(close),
                _ => format!("{} {}", Grammar::embedded(&with_definitions(property, self.root)), text(close)),
            };
            let parameter = self.rule(&format!("{head} {value}"));
            all.push(if required { parameter } else { format!("{parameter}?") });
        }
        Ok(all.join(" "))
    }

    fn refused(&self, reason: &'static str) -> Error {
        ToolError::Schema { tool: self.tool.into(), reason }.into()
    }

    /// The properties of an object with their values, in the order of the schema, separated by commas.
    fn pairs(&mut self, notation: &Notation, schema: &Value, level: usize) -> Result<String, Error> {
        let Notation { plain_keys, comma, .. } = *notation;
        let between = if level == 0 { notation.assign } else { notation.colon };
        let mut properties = properties(schema);
        if plain_keys {
            properties.sort_by_key(|(name, ..)| name.to_lowercase());
        }
        // The rest after some properties were written, and after none was.
        let (mut some, mut none) = (String::new(), String::new());
        for (name, property, required) in properties.into_iter().rev() {
            if plain_keys && !is_plain(name) {
                return Err(self.refused("a name has signs that are no letters"));
            }
            let value = self.value(notation, property, level + 1)?;
            let key =
                if plain_keys || level == 0 { format!("{name}{between}") } else { format!("{}{between}", text(name)) };
            let pair = self.rule(&format!("{} {value}", text(&key)));
            let first = format!("{pair} {some}");
            let next = format!("{} {pair} {some}", text(comma));
            let or = |rest: &str| match rest {
                _ if required => String::new(),
                "" => " | \"\"".into(),
                rest => format!(" | {rest}"),
            };
            (none, some) = (self.rule(&(first + &or(&none))), self.rule(&(next + &or(&some))));
        }
        Ok(none)
    }

    /// A value of `schema` in this notation: types, properties and lists of values are kept.
    fn value(&mut self, notation: &Notation, schema: &Value, level: usize) -> Result<String, Error> {
        if level > LEVELS {
            return Err(self.refused("it has more than 32 levels"));
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.referred(notation, reference, level);
        }
        let [yes, no, nothing] = notation.words;
        if let Some(options) = options(schema) {
            let options: Option<Vec<String>> = options
                .iter()
                .map(|option| match option {
                    Value::String(option) => Some(self.quoted(notation, option)),
                    Value::Bool(option) => Some(text(if *option { yes } else { no })),
                    Value::Null => Some(text(nothing)),
                    Value::Number(number) => Some(text(&number.to_string())),
                    _ => None,
                })
                .collect();
            let reason = "a list of values is empty, or has lists or objects in it";
            return self.one_of(&options.unwrap_or_default(), reason);
        }
        if let Some(schemas) = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array) {
            let values = schemas.iter().map(|schema| self.value(notation, schema, level + 1));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            return self.one_of(&values, "a list of schemas is empty");
        }
        if schema.get("allOf").is_some() {
            return Err(self.refused("allOf is not kept by calls that are no JSON"));
        }
        let types: Vec<&str> = match schema.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => return Ok(self.any(notation)),
        };
        let mut values = Vec::new();
        for name in types {
            values.push(match name {
                "string" => self.string(notation),
                "integer" => "/-?(0|[1-9][0-9]{0,17})/".into(),
                "number" => NUMBER.into(),
                "boolean" => format!("({} | {})", text(yes), text(no)),
                "null" => text(nothing),
                "array" => {
                    let item = match schema.get("items") {
                        Some(items) => self.value(notation, items, level + 1)?,
                        None => self.any(notation),
                    };
                    format!("\"[\" ({item} ({} {item})*)? \"]\"", text(notation.comma))
                }
                "object" if schema.get("properties").is_some() => {
                    format!("\"{{\" {} \"}}\"", self.pairs(notation, schema, level.max(1))?)
                }
                "object" => {
                    let of = schema.get("additionalProperties").filter(|of| of.is_object());
                    let value = match of {
                        Some(of) => self.value(notation, of, level + 1)?,
                        None => self.any(notation),
                    };
                    self.map(notation, &value)
                }
                _ => return Err(self.refused("a type is not known")),
            });
        }
        Ok(self.rule(&values.join(" | ")))
    }

    /// A rule for one of these expressions; `reason` is the error if there are none.
    fn one_of(&mut self, expressions: &[String], reason: &'static str) -> Result<String, Error> {
        if expressions.is_empty() { Err(self.refused(reason)) } else { Ok(self.rule(&expressions.join(" | "))) }
    }

    /// A string of these letters.
    fn quoted(&self, notation: &Notation, letters: &str) -> String {
        match notation.quote.map(|quote| self.mark(quote)) {
            Some(quote) if letters.is_empty() => format!("{quote} {quote}"),
            Some(quote) => format!("{quote} {} {quote}", text(letters)),
            None => text(&text(letters)),
        }
    }

    fn string(&mut self, notation: &Notation) -> String {
        match notation.quote.map(|quote| (quote, self.tokenizer.added_token(quote))) {
            Some((_, Some(quote))) => format!("<[{quote}]> TEXT? <[{quote}]>"),
            Some((quote, None)) => format!("{} {}", text(quote), self.until(quote)),
            None => r#"/"([^"\\\n]|\\["\\nt])*"/"#.into(),
        }
    }

    /// An object with any names and with these values.
    fn map(&mut self, notation: &Notation, value: &str) -> String {
        let (comma, key) = (text(notation.comma), self.string(notation));
        let pair = self.rule(&format!("{key} {} {value}", text(notation.colon)));
        self.rule(&format!("\"{{\" ({pair} ({comma} {pair})*)? \"}}\""))
    }

    /// A value of the schema's reference, as a rule of its own, so that it may refer to itself.
    fn referred(&mut self, notation: &Notation, reference: &str, level: usize) -> Result<String, Error> {
        if let Some(rule) = self.known.get(reference) {
            return Ok(rule.clone());
        }
        let found = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let found = found.ok_or_else(|| self.refused("a reference leads nowhere"))?;
        let name = self.name();
        self.known.insert(reference.into(), name.clone());
        let value = self.value(notation, found, level + 1)?;
        self.define(&name, &value);
        Ok(name)
    }

    /// Any value: a string, a number, a word, a list of them, or an object of them.
    fn any(&mut self, notation: &Notation) -> String {
        let words = notation.words.map(text).join(" | ");
        let string = self.string(notation);
        let one = self.rule(&format!("{string} | {NUMBER} | {words}"));
        let comma = text(notation.comma);
        let map = self.map(notation, &one);
        self.rule(&format!("{one} | \"[\" ({one} ({comma} {one})*)? \"]\" | {map}"))
    }
}

const ID: &str = "/[a-zA-Z0-9]{9}/";

const NUMBER: &str = r"/-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?/";

/// Whether `name` has no character by which calls are parsed.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_control() || c.is_whitespace() || "\"'()[]{}<>,:=".contains(c))
}

/// The properties of an object, each with whether it is required.
fn properties(schema: &Value) -> Vec<(&str, &Value, bool)> {
    let required = |name: &str| {
        let required = schema.get("required").and_then(Value::as_array);
        required.is_some_and(|required| required.iter().any(|known| known == name))
    };
    let properties: Option<&Map<String, Value>> = schema.get("properties").and_then(Value::as_object);
    let all = properties.into_iter().flatten();
    all.map(|(name, property)| (name.as_str(), property, required(name))).collect()
}

/// The values that a schema lists.
fn options(schema: &Value) -> Option<Vec<Value>> {
    let one = schema.get("const").map(|value| vec![value.clone()]);
    one.or_else(|| schema.get("enum").and_then(Value::as_array).cloned())
}
