//! Tools and the format of calls -> the grammar of an answer that calls them.

use super::literal::GEMMA_QUOTE;
use super::reader::syntax;
use super::{Tool, ToolChoice, read};
use crate::error::{Error, ToolError};
use crate::grammar::{Grammar, closed};
use crate::tokenizer::Tokenizer;
use model_factory_format::tokenizer::ToolCallFormat;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Schemas within each other.
const LEVELS: usize = 32;

/// The grammar that `choice` asks for; `None` where calls are as the model likes. Where calls are not asked for and there is
/// `other`, an answer is that or calls.
///
/// # Errors
/// `Tool` for a tool that there is not, and where none can be held to its schema; `Grammar` for a schema that cannot be kept.
pub(crate) fn grammar(
    choice: &ToolChoice,
    format: ToolCallFormat,
    tools: &[Tool],
    tokenizer: &Tokenizer,
    other: Option<&Grammar>,
) -> Result<Option<Grammar>, Error> {
    let known = || tools.iter().map(|tool| tool.name.clone()).collect();
    let tools: Vec<&Tool> = match choice {
        ToolChoice::None => return Ok(None),
        ToolChoice::Auto if other.is_none() => return Ok(None),
        ToolChoice::Auto | ToolChoice::Strict | ToolChoice::Required => tools.iter().collect(),
        ToolChoice::Named(name) => tools.iter().filter(|tool| tool.name == *name).collect(),
    };
    if let (true, ToolChoice::Named(name)) = (tools.is_empty(), choice) {
        return Err(ToolError::Unknown { name: name.clone(), known: known() }.into());
    }
    let mut schemas: Vec<(String, Value)> =
        tools.iter().map(|tool| (tool.name.clone(), closed(tool.parameters.clone()))).collect();
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

/// A grammar in Lark that grows.
struct Lark<'a> {
    rules: String,
    names: usize,
    format: ToolCallFormat,
    tokenizer: &'a Tokenizer,
    /// The tool whose call is written, and the schema of its arguments.
    tool: &'a str,
    root: &'a Value,
    /// Rules of what its schema refers to.
    known: HashMap<String, String>,
    /// Whether the answer may be other JSON than a call. A call without a mark is JSON as that is then, with the same blanks, so
    /// that both may begin alike.
    is_json: bool,
}

/// Whether a reference of `schema` leads elsewhere than into its definitions.
fn refers_elsewhere(schema: &Value) -> bool {
    let leads = |to: &str| !(to.starts_with("#/$defs/") || to.starts_with("#/definitions/"));
    match schema {
        Value::Array(list) => list.iter().any(refers_elsewhere),
        Value::Object(object) => {
            object.get("$ref").and_then(Value::as_str).is_some_and(leads) || object.values().any(refers_elsewhere)
        }
        _ => false,
    }
}

/// Whether calls of `tool` with this schema can be written in `format`, and read.
fn check(tool: &str, schema: &Value, format: ToolCallFormat) -> Result<(), ToolError> {
    let found = schema.get("type").unwrap_or(schema);
    if found != "object" {
        return Err(ToolError::NotObject { tool: tool.into(), found: found.to_string() });
    }
    let (is_json, has_names) = match format {
        ToolCallFormat::Hermes
        | ToolCallFormat::Phi4MiniJson
        | ToolCallFormat::Mistral
        | ToolCallFormat::Llama3Json => (true, false),
        ToolCallFormat::MistralArgs
        | ToolCallFormat::DeepseekV3
        | ToolCallFormat::DeepseekV31
        | ToolCallFormat::Harmony => (false, false),
        ToolCallFormat::Qwen3Xml | ToolCallFormat::Gemma4 | ToolCallFormat::Lfm2 | ToolCallFormat::Olmo3 => {
            (false, true)
        }
    };
    let parameters = properties(schema).into_iter().map(|(name, ..)| name).filter(|_| has_names);
    let names = [tool].into_iter().filter(|_| !is_json).chain(parameters);
    match names.into_iter().find(|name| !is_plain(name)) {
        Some(name) => Err(ToolError::Name { tool: tool.into(), name: name.into(), format }),
        None => Ok(()),
    }
}

/// `text` as Lark writes it.
fn text(text: &str) -> String {
    Value::from(text).to_string()
}

impl<'a> Lark<'a> {
    /// A rule of this expression; its name.
    fn rule(&mut self, expression: &str) -> String {
        self.names += 1;
        let name = format!("r{}", self.names);
        // Writing to a string does not fail.
        let _ = writeln!(self.rules, "{name}: {expression}");
        name
    }

    /// A rule of a text that ends with the first `suffix`.
    fn until(&mut self, suffix: &str) -> String {
        self.names += 1;
        let name = format!("r{}", self.names);
        let _ = writeln!(self.rules, "{name}[suffix={}]: /(?s:.*)/", text(suffix));
        name
    }

    /// The token of a mark, or its letters where the vocabulary has no such token.
    fn mark(&self, mark: &str) -> String {
        self.tokenizer.added_token(mark).map_or_else(|| text(mark), |id| format!("<[{id}]>"))
    }

    /// One call of the tool `name`, without what opens and closes it.
    fn call(&mut self, name: &'a str, schema: &'a Value) -> Result<String, Error> {
        (self.tool, self.root) = (name, schema);
        self.known.clear();
        let json = Grammar::embedded(schema);
        let object = |key: &str| format!("{} {json} \"}}\"", text(&format!("{{\"name\": {}, \"{key}\": ", text(name))));
        Ok(match self.format {
            ToolCallFormat::Hermes => format!(r#""\n" {} "\n""#, object("arguments")),
            ToolCallFormat::Phi4MiniJson => object("arguments"),
            ToolCallFormat::Mistral => {
                let head = text(&format!("{{\"name\": {}, \"arguments\": ", text(name)));
                format!(r#"{head} {json} ", \"id\": \"" /[a-zA-Z0-9]{{9}}/ "\"}}""#)
            }
            ToolCallFormat::Llama3Json if self.is_json => Grammar::embedded(&self.call_schema()?),
            ToolCallFormat::Llama3Json => object("parameters"),
            ToolCallFormat::MistralArgs => {
                let id = self.tokenizer.added_token("[CALL_ID]");
                let id = id.map(|id| format!("(<[{id}]> /[a-zA-Z0-9]{{9}}/)? ")).unwrap_or_default();
                format!("{} {id}{} {json}", text(name), self.mark("[ARGS]"))
            }
            ToolCallFormat::DeepseekV3 => {
                let separator = self.mark(read::DEEPSEEK_SEPARATOR);
                format!("\"function\" {separator} {} {json} \"\\n```\"", text(&format!("{name}\n```json\n")))
            }
            ToolCallFormat::DeepseekV31 => format!("{} {} {json}", text(name), self.mark(read::DEEPSEEK_SEPARATOR)),
            ToolCallFormat::Qwen3Xml => {
                let parameters = self.parameters(schema)?;
                format!("{} {parameters} \"</function>\\n\"", text(&format!("\n<function={name}>\n")))
            }
            ToolCallFormat::Harmony => {
                let head = text(&format!(" to=functions.{name}"));
                let [channel, message] = ["<|channel|>", "<|message|>"].map(|mark| self.mark(mark));
                format!("{head} {channel} \"commentary json\" {message} {json}")
            }
            ToolCallFormat::Gemma4 => {
                let pairs = self.pairs(schema, 0)?;
                format!("{} {pairs} \"}}\"", text(&format!("call:{name}{{")))
            }
            ToolCallFormat::Lfm2 | ToolCallFormat::Olmo3 => {
                let pairs = self.pairs(schema, 0)?;
                format!("{} {pairs} \")\"", text(&format!("{name}(")))
            }
        })
    }

    /// The schema of a call, `{"name": .., "parameters": ..}`.
    fn call_schema(&self) -> Result<Value, Error> {
        let mut parameters = self.root.clone();
        let mut schema = json!({ "type": "object", "required": ["name", "parameters"], "additionalProperties": false });
        for key in ["$defs", "definitions", "$schema"] {
            if let Some(value) = parameters.as_object_mut().and_then(|parameters| parameters.remove(key)) {
                schema[key] = value;
            }
        }
        if refers_elsewhere(self.root) {
            return Err(self.refused("a reference leads elsewhere than into its definitions"));
        }
        schema["properties"] = json!({ "name": { "const": self.tool }, "parameters": parameters });
        Ok(schema)
    }

    /// The answer that `choice` asks for, of this `call`, or the `other` one.
    fn answer(&mut self, call: &str, choice: &ToolChoice, other: Option<&str>) -> Result<String, Error> {
        let format = self.format;
        let one = matches!(choice, ToolChoice::Named(_));
        let syntax = syntax(format);
        let mark = |lark: &Self, marks: &[&str]| marks.first().map(|mark| lark.mark(mark)).unwrap_or_default();
        let (open, close) = (mark(self, syntax.opens), mark(self, syntax.closes));
        let many =
            |part: &str, between: &str| if one { part.to_owned() } else { format!("{part} ({between} {part})*") };
        let calls = match format {
            ToolCallFormat::Hermes | ToolCallFormat::Qwen3Xml => many(&format!("{open} {call} {close}"), "\"\\n\""),
            ToolCallFormat::DeepseekV3 | ToolCallFormat::DeepseekV31 => {
                let [begin, end] = ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"].map(|frame| self.mark(frame));
                let between = if format == ToolCallFormat::DeepseekV3 { "\"\\n\"" } else { "" };
                format!("{begin} {} {end}", many(&format!("{open} {call} {close}"), between))
            }
            ToolCallFormat::Phi4MiniJson => {
                // Granite 3 has no mark behind the list.
                let close = self.tokenizer.added_token("<|/tool_call|>").map(|_| close).unwrap_or_default();
                format!("{open} \"[\" {} \"]\" {close}", many(call, "\", \""))
            }
            ToolCallFormat::Mistral => format!("{open} \"[\" {} \"]\"", many(call, "\", \"")),
            ToolCallFormat::MistralArgs | ToolCallFormat::Gemma4 => many(&format!("{open} {call} {close}"), ""),
            ToolCallFormat::Lfm2 => format!("{open} \"[\" {} \"]\" {close}", many(call, "\", \"")),
            ToolCallFormat::Olmo3 => format!("{open} {} {close}", many(call, "\"\\n\"")),
            ToolCallFormat::Llama3Json => call.to_owned(),
            ToolCallFormat::Harmony => return Ok(self.messages(call, choice, other)),
        };
        if let Some(other) = other {
            return Ok(format!("{} | {}", self.rule(&calls), self.rule(other)));
        }
        if *choice != ToolChoice::Strict {
            return Ok(calls);
        }
        // A text ends where the mark is a token; where it is spelled, text and call cannot be told apart.
        let opener = if matches!(format, ToolCallFormat::DeepseekV3 | ToolCallFormat::DeepseekV31) {
            "<｜tool▁calls▁begin｜>"
        } else {
            syntax.opens.first().copied().unwrap_or_default()
        };
        if format == ToolCallFormat::Llama3Json || self.tokenizer.added_token(opener).is_none() {
            return Err(ToolError::NotStrict { format }.into());
        }
        let calls = self.rule(&calls);
        Ok(format!("TEXT? ({calls} TEXT?)*"))
    }

    /// gpt-oss: messages of analysis, then a call or, where `choice` leaves that open, the answer.
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

    /// The parameters of a call in XML: strings as they are, other values as JSON.
    fn parameters(&mut self, schema: &Value) -> Result<String, Error> {
        let mut all = Vec::new();
        for (name, property, required) in properties(schema) {
            let head = text(&format!("<parameter={name}>\n"));
            let value = match options(property) {
                Some(options) if options.is_empty() => return Err(self.refused("a list of values is empty")),
                Some(options) if options.iter().all(Value::is_string) => {
                    let options: Vec<String> = options.iter().filter_map(Value::as_str).map(text).collect();
                    format!("({}) \"\\n</parameter>\\n\"", options.join(" | "))
                }
                _ if read::takes(property, "string") => self.until("\n</parameter>\n"),
                _ => format!("{} \"\\n</parameter>\\n\"", Grammar::embedded(&self.with_definitions(property))),
            };
            let parameter = self.rule(&format!("{head} {value}"));
            all.push(if required { parameter } else { format!("{parameter}?") });
        }
        Ok(all.join(" "))
    }

    /// A part of the schema, with what it may refer to.
    fn with_definitions(&self, part: &Value) -> Value {
        let mut part = part.clone();
        for key in ["$defs", "definitions", "$schema"] {
            if let (Some(part), Some(value)) = (part.as_object_mut(), self.root.get(key)) {
                part.entry(key).or_insert_with(|| value.clone());
            }
        }
        part
    }

    fn refused(&self, reason: &'static str) -> Error {
        ToolError::Schema { tool: self.tool.into(), reason }.into()
    }

    /// The properties of an object with their values, in the order of the schema, a comma between each two.
    fn pairs(&mut self, schema: &Value, level: usize) -> Result<String, Error> {
        let is_gemma = self.format == ToolCallFormat::Gemma4;
        let (between, comma) = if is_gemma {
            (":", ",")
        } else if level == 0 {
            ("=", ", ")
        } else {
            (": ", ", ")
        };
        let mut properties = properties(schema);
        if is_gemma {
            // As its template writes them.
            properties.sort_by_key(|(name, ..)| name.to_lowercase());
        }
        // What comes behind properties of which one was written, or none.
        let (mut some, mut none) = (String::new(), String::new());
        for (name, property, required) in properties.into_iter().rev() {
            if is_gemma && !is_plain(name) {
                return Err(self.refused("a name has signs that are no letters"));
            }
            let value = self.value(property, level + 1)?;
            let key =
                if is_gemma || level == 0 { format!("{name}{between}") } else { format!("{}{between}", text(name)) };
            let pair = self.rule(&format!("{} {value}", text(&key)));
            let first = format!("{pair} {some}");
            let next = format!("{} {pair} {some}", text(comma));
            (none, some) = if required {
                (self.rule(&first), self.rule(&next))
            } else {
                (
                    self.rule(&format!("{first} | {}", or_nothing(&none))),
                    self.rule(&format!("{next} | {}", or_nothing(&some))),
                )
            };
        }
        Ok(none)
    }

    /// A value of `schema` as Python or Gemma 4 writes it: types, properties and lists of values are kept.
    fn value(&mut self, schema: &Value, level: usize) -> Result<String, Error> {
        if level > LEVELS {
            return Err(ToolError::TooDeep { limit: LEVELS }.into());
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.referred(reference, level);
        }
        let is_gemma = self.format == ToolCallFormat::Gemma4;
        let (yes, no, nothing) = if is_gemma { ("true", "false", "null") } else { ("True", "False", "None") };
        if let Some(options) = options(schema) {
            let options: Option<Vec<String>> = options
                .iter()
                .map(|option| match option {
                    Value::String(option) => Some(self.quoted(option)),
                    Value::Bool(option) => Some(text(if *option { yes } else { no })),
                    Value::Null => Some(text(nothing)),
                    Value::Number(number) => Some(text(&number.to_string())),
                    _ => None,
                })
                .collect();
            return match options {
                Some(options) if !options.is_empty() => Ok(self.rule(&options.join(" | "))),
                _ => Err(self.refused("a list of values is empty, or has lists or objects in it")),
            };
        }
        if let Some(schemas) = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array) {
            let values: Result<Vec<String>, Error> =
                schemas.iter().map(|schema| self.value(schema, level + 1)).collect();
            let values = values?;
            return if values.is_empty() {
                Err(self.refused("a list of schemas is empty"))
            } else {
                Ok(self.rule(&values.join(" | ")))
            };
        }
        if schema.get("allOf").is_some() {
            return Err(self.refused("allOf is not kept by calls that are no JSON"));
        }
        let types: Vec<&str> = match schema.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => return Ok(self.any()),
        };
        let mut values = Vec::new();
        for name in types {
            values.push(match name {
                "string" => self.string(),
                "integer" => "/-?(0|[1-9][0-9]{0,17})/".into(),
                "number" => NUMBER.into(),
                "boolean" => format!("({} | {})", text(yes), text(no)),
                "null" => text(nothing),
                "array" => {
                    let item = match schema.get("items") {
                        Some(items) => self.value(items, level + 1)?,
                        None => self.any(),
                    };
                    format!("\"[\" ({item} ({} {item})*)? \"]\"", text(self.comma()))
                }
                "object" if schema.get("properties").is_some() => {
                    format!("\"{{\" {} \"}}\"", self.pairs(schema, level.max(1))?)
                }
                "object" => {
                    let of = schema.get("additionalProperties").filter(|of| of.is_object());
                    let value = match of {
                        Some(of) => self.value(of, level + 1)?,
                        None => self.any(),
                    };
                    self.map(&value)
                }
                _ => return Err(self.refused("a type is not known")),
            });
        }
        Ok(self.rule(&values.join(" | ")))
    }

    fn comma(&self) -> &'static str {
        if self.format == ToolCallFormat::Gemma4 { "," } else { ", " }
    }

    /// A string of these letters.
    fn quoted(&self, letters: &str) -> String {
        match self.format {
            ToolCallFormat::Gemma4 => {
                let quote = self.mark(GEMMA_QUOTE);
                if letters.is_empty() {
                    format!("{quote} {quote}")
                } else {
                    format!("{quote} {} {quote}", text(letters))
                }
            }
            _ => text(&text(letters)),
        }
    }

    /// Any string.
    fn string(&mut self) -> String {
        match self.format {
            ToolCallFormat::Gemma4 => match self.tokenizer.added_token(GEMMA_QUOTE) {
                Some(quote) => format!("<[{quote}]> TEXT? <[{quote}]>"),
                None => format!("{} {}", text(GEMMA_QUOTE), self.until(GEMMA_QUOTE)),
            },
            _ => r#"/"([^"\\\n]|\\["\\nt])*"/"#.into(),
        }
    }

    /// An object of any names, with these values.
    fn map(&mut self, value: &str) -> String {
        let (comma, key) = (text(self.comma()), self.string());
        let between = if self.format == ToolCallFormat::Gemma4 { text(":") } else { text(": ") };
        let pair = self.rule(&format!("{key} {between} {value}"));
        self.rule(&format!("\"{{\" ({pair} ({comma} {pair})*)? \"}}\""))
    }

    /// A value of what the schema refers to; a rule of its own, so that it may refer to itself.
    fn referred(&mut self, reference: &str, level: usize) -> Result<String, Error> {
        if let Some(rule) = self.known.get(reference) {
            return Ok(rule.clone());
        }
        let found = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let found = found.ok_or_else(|| self.refused("a reference leads nowhere"))?;
        self.names += 1;
        let name = format!("r{}", self.names);
        self.known.insert(reference.into(), name.clone());
        let value = self.value(found, level + 1)?;
        // Writing to a string does not fail.
        let _ = writeln!(self.rules, "{name}: {value}");
        Ok(name)
    }

    /// Any value: a string, a number, a word, a list of them, or an object of them.
    fn any(&mut self) -> String {
        let is_gemma = self.format == ToolCallFormat::Gemma4;
        let words = if is_gemma { "\"true\" | \"false\" | \"null\"" } else { "\"True\" | \"False\" | \"None\"" };
        let string = self.string();
        let one = self.rule(&format!("{string} | {NUMBER} | {words}"));
        let comma = text(self.comma());
        let map = self.map(&one);
        self.rule(&format!("{one} | \"[\" ({one} ({comma} {one})*)? \"]\" | {map}"))
    }
}

const NUMBER: &str = r"/-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?/";

fn or_nothing(expression: &str) -> &str {
    if expression.is_empty() { "\"\"" } else { expression }
}

/// Whether `name` has no sign by which a call is read.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_control() || c.is_whitespace() || "\"'()[]{}<>,:=".contains(c))
}

/// The properties of an object, each with whether it must be there.
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
