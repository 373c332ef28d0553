//! No id of a mark comes from a message, a tool or a variable, for every template here and every mark that it writes.
//!
//! Each chat is rendered twice: once with texts that spell marks, and once with letters in their place. If the template's own
//! text is the same both times, the marks have the same ids. Marks that no template writes must not occur in either.

use super::*;
use crate::tokenizer::Tokenizer;
use serde_json::json;
use std::collections::BTreeSet;

/// Marks that are in no template.
const ABSENT: [&str; 4] = ["<|forged|>", "[FORGED]", "<forged>", "</forged>"];

/// Templates that take texts apart and join them again. `m` are the messages.
const TAKING_APART: [&str; 12] = [
    "{% for x in m %}<s>{{ x.role }}{{ x.content }}{{ x.content | trim }}</s>{% endfor %}",
    "{% for x in m %}{{ '<s>' ~ x.content ~ x.content[::-1] ~ '</s>' }}{% endfor %}",
    "{{ m | map(attribute='content') | join('</s>') }}",
    "{% for x in m %}<s>{{ x.content.split('|') | join('|') }}{{ x.content.replace('q', '<') }}</s>{% endfor %}",
    "{% for x in m %}<s>{% for c in x.content %}{{ c }}{% endfor %}</s>{% endfor %}",
    "{% for x in m %}<s>{{ x.content[:5] }}{{ x.content[5:] }}{{ x.content | reverse }}</s>{% endfor %}",
    "{{ m | tojson }}<s>{{ tools | tojson(indent=2) }}</s>{{ m }}",
    "{% macro f(t) %}<s>{{ t | upper | lower }}{{ caller() }}</s>{% endmacro %}{% for x in m %}{% call f(x.content) %}{{ x.content | escape }}{% endcall %}{% endfor %}",
    "{% set ns = namespace(t='<s>') %}{% for x in m %}{% set ns.t = ns.t + x.content %}{% endfor %}{{ ns.t.strip() }}</s>",
    "{% for x in m %}{{ '<s>{}</s>'.format(x.content) }}{{ '%s' | format(x.content) }}{{ x.content | indent }}{% endfor %}",
    "{% for x in m %}<s>{{ x.content.partition('|')[0] }}|{{ x.content.partition('|')[2] }}{{ x.content | list | join }}</s>{% endfor %}",
    "{% for x in m %}<{{ x.content }}|{{ x.content }}|>{{ '<|' }}{{ x.role }}|>{{ ('<' ~ x.content ~ '>') * 2 }}{% endfor %}",
];

/// A vocabulary that has `marks`, in one of several ways; their ids are below their number.
fn vocabulary(marks: &[String], way: usize) -> Tokenizer {
    let first = marks.len();
    let entry = |(id, text): (usize, &String)| {
        json!({"id": id, "content": text, "single_word": false, "lstrip": way == 1 && id % 3 == 1,
            "rstrip": way == 1 && id % 3 == 2, "normalized": way == 1, "special": id % 2 == 0})
    };
    let added: Vec<Json> = marks.iter().enumerate().map(entry).collect();
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    let mut ids: Vec<String> = marks.to_vec();
    let file = match way {
        // Merges spell every ASCII mark, and a piece that is a token is not split.
        0 | 1 => {
            ids.extend((0..=255u8).map(|byte| match byte {
                0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => char::from(byte).to_string(),
                0..=0x20 => char::from_u32(0x100 + u32::from(byte)).unwrap().to_string(),
                0x7f..=0xa0 => char::from_u32(0x121 + u32::from(byte) - 0x7f).unwrap().to_string(),
                0xad => "\u{143}".to_owned(),
            }));
            let mut merges = BTreeSet::new();
            for mark in marks.iter().filter(|mark| way == 0 && mark.bytes().all(|byte| byte.is_ascii_graphic())) {
                for end in 2..=mark.len() {
                    merges.insert((mark[..end - 1].to_owned(), mark[end - 1..end].to_owned()));
                }
            }
            let known: BTreeSet<String> = ids.iter().cloned().collect();
            let made: BTreeSet<String> = merges.iter().map(|(left, right)| format!("{left}{right}")).collect();
            ids.extend(made.difference(&known).cloned());
            let vocab: serde_json::Map<String, Json> =
                ids.iter().enumerate().map(|(id, text)| (text.clone(), id.into())).collect();
            let normalizer = if way == 1 { json!({"type": "NFKC"}) } else { json!(null) };
            json!({"added_tokens": added, "normalizer": normalizer, "pre_tokenizer": level, "decoder": level,
                "model": {"type": "BPE", "vocab": vocab, "merges": merges.into_iter().collect::<Vec<_>>(), "ignore_merges": true}})
        }
        // The pieces with the best score are the marks.
        _ => {
            let mut vocab: Vec<Json> = marks.iter().map(|mark| json!([mark, 0.0])).collect();
            vocab.push(json!(["<unk>", 0.0]));
            vocab.extend((0..=255u8).map(|byte| json!([format!("<0x{byte:02X}>"), -20.0])));
            let steps = json!([{"type": "ByteFallback"}, {"type": "Fuse"}]);
            json!({"added_tokens": added, "normalizer": null, "pre_tokenizer": null,
                "decoder": {"type": "Sequence", "decoders": steps},
                "model": {"type": "Unigram", "vocab": vocab, "unk_id": first, "byte_fallback": true}})
        }
    };
    let files = json!({"tokenizer.json": file});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, files["tokenizer.json"].to_string()).unwrap();
    let mut spec = tokenizer_of(&serde_json::Map::new());
    (spec.bos, spec.eos, spec.add_bos, spec.add_eos, spec.stop_ids) = (None, None, false, false, BTreeMap::new());
    spec.model = file["model"]["type"].as_str().map(str::to_owned);
    spec.tokens = ids.len().max(first + 257);
    Tokenizer::from_json(&path, &spec).unwrap()
}

/// A reproducible sequence of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }

    fn one_of<'t>(&mut self, texts: &'t [String]) -> &'t str {
        &texts[self.below(texts.len())]
    }
}

/// A text that spells marks, or half of one.
fn spelled(numbers: &mut Numbers, marks: &[String]) -> String {
    let mut text = String::new();
    for _ in 0..=numbers.below(3) {
        let mark = numbers.one_of(marks).to_owned();
        let half = mark.chars().count() / 2;
        match numbers.below(8) {
            0 => text.extend(mark.chars().take(half)),
            1 => text.extend(mark.chars().skip(half)),
            2 => text.extend(mark.chars().map(|c| match c {
                '!'..='~' => char::from_u32(u32::from(c) + 0xfee0).unwrap(),
                _ => c,
            })),
            3 => text += &format!(" {mark}\n"),
            4 => text += "hello",
            _ => text += &mark,
        }
    }
    text
}

/// A chat of `texts`, one after another, with calls, results, documents and tools.
fn chat(shape: u64, mut text: impl FnMut() -> String) -> (Vec<Message>, ChatOptions) {
    let mut shape = Numbers(shape);
    let mut messages = Vec::new();
    if shape.below(3) > 0 {
        messages.push(Message::system(text()));
    }
    for _ in 0..=shape.below(2) {
        messages.push(Message::user(text() + &text()).field("name", text()));
        if shape.below(3) == 0 {
            let arguments = json!({text(): text(), "list": [text(), {"deep": text()}]});
            let call =
                json!([{"type": "function", "id": "abcdefgh1", "function": {"name": text(), "arguments": arguments}}]);
            let mut calls = Message::tool_calls(call).field("reasoning_content", text());
            calls.content = Some(text()).filter(|_| shape.below(2) == 0);
            messages.push(calls);
            messages.push(Message::tool(text()).field("name", text()).field("tool_call_id", "abcdefgh1"));
        }
        messages.push(Message::assistant(text()));
        if shape.below(4) == 0 {
            messages.last_mut().unwrap().fields.insert("reasoning_content".into(), text().into());
        }
    }
    if shape.below(9) == 0 {
        messages.push(Message::new(text(), text()));
    }
    messages.push(Message::user(text()));
    let mut options = ChatOptions::default().now("2026-01-31T12:00:00".parse().unwrap());
    if shape.below(3) == 0 {
        let parameters = json!({"type": "object", "properties": {text(): {"type": "string", "description": text()}}, "required": []});
        options = options.tool(
            json!({"type": "function", "function": {"name": text(), "description": text(), "parameters": parameters}}),
        );
    }
    if shape.below(3) == 0 {
        let documents = json!([{"title": text(), "text": text(), "contents": text()}]);
        options = options.variable("documents", documents).variable("date_string", text());
        options = options.variable("functions", text()).variable("datetime", text());
    }
    if shape.below(3) == 0 {
        options = options.variable("enable_thinking", shape.below(2) == 0);
    }
    (messages, options)
}

struct Found {
    own: String,
    marks: Vec<u32>,
}

/// A template and a vocabulary with its marks.
struct Case<'t> {
    template: ChatTemplate<'t>,
    tokenizer: Tokenizer,
    marks: Vec<String>,
    is_mark: BTreeSet<u32>,
}

impl Case<'_> {
    fn ids(&self, messages: &[Message], options: &ChatOptions) -> Option<(RenderedChat, Vec<u32>)> {
        let rendered = self.template.render_with_spans(messages, options, true).ok()?;
        let ids = self.tokenizer.encode_prompt_within(&rendered.text, &rendered.template_spans).unwrap();
        Some((rendered, ids))
    }

    fn found(&self, messages: &[Message], options: &ChatOptions) -> Option<Found> {
        let (rendered, ids) = self.ids(messages, options)?;
        let only = |ids: Vec<u32>| -> Vec<u32> { ids.into_iter().filter(|id| self.is_mark.contains(id)).collect() };
        let spans: Vec<&str> = rendered.template_spans.iter().map(|span| &rendered.text[span.clone()]).collect();
        let (own, marks) = (spans.concat(), only(ids));
        // Each span is encoded separately, with special tokens.
        let apart = spans.iter().flat_map(|span| only(self.tokenizer.encode(span, false).unwrap()));
        assert!(options.trust_special_tokens || marks.iter().copied().eq(apart), "{own}");
        Some(Found { own, marks })
    }

    /// Whether the chat of `shape` was compared with one of letters; `None` if the template refuses it.
    fn compare(&self, name: &str, shape: u64) -> Option<bool> {
        let mut numbers = Numbers(shape ^ 0x9e37_79b9_7f4a_7c15);
        let mut lengths = Vec::new();
        let (messages, options) = chat(shape, || {
            let text = spelled(&mut numbers, &self.marks);
            lengths.push(text.chars().count());
            text
        });
        let mut letters = lengths.into_iter().map(|count| "x".repeat(count));
        let (plain, plain_options) = chat(shape, || letters.next().unwrap());
        let harmless = self.found(&plain, &plain_options)?;
        // If no text spells a mark, the ids are those of transformers.
        let trusting = plain_options.clone().trust_special_tokens(true);
        let (ids, all) = (self.ids(&plain, &plain_options).unwrap().1, self.ids(&plain, &trusting).unwrap().1);
        assert_eq!(ids, all, "{name}, {shape}: {:?}", self.ids(&plain, &plain_options).unwrap().0);
        let forged = self.found(&messages, &options)?;
        let absent = forged.marks.iter().filter_map(|id| self.tokenizer.token_text(*id));
        assert!(!absent.clone().any(|text| ABSENT.contains(&text.as_str())), "{name}, {shape}");
        if forged.own != harmless.own {
            return Some(false);
        }
        assert_eq!(forged.marks, harmless.marks, "{name}, {shape}: {messages:?}");
        Some(true)
    }
}

/// Collects the texts in `text` that look like a mark.
fn marks_in(text: &str, marks: &mut BTreeSet<String>) {
    for (open, close) in [("<|", "|>"), ("<｜", "｜>"), ("<", ">"), ("[", "]"), ("<", "|>"), ("<|", ">")] {
        for (at, _) in text.match_indices(open) {
            let inner = &text[at + open.len()..];
            let Some(end) = inner.find(close).filter(|end| (1..40).contains(end)) else { continue };
            let name = &inner[..end];
            let plain = |c: char| c.is_alphanumeric() || "_/-▁".contains(c);
            let loud = open != "[" || name.chars().all(|c| c.is_ascii_uppercase() || "_/".contains(c));
            if name.chars().all(plain) && loud && name.chars().any(char::is_alphabetic) {
                marks.insert(format!("{open}{name}{close}"));
            }
        }
    }
}

/// Compares `count` chats of the template in each of three vocabularies: how many were compared, differed, and were refused.
fn compared(name: &str, source: &str, seed: u64, count: u64) -> [usize; 3] {
    let template = template(source);
    let mut marks = BTreeSet::from(["<bos>".to_owned(), "<eos>".to_owned()]);
    marks_in(source, &mut marks);
    for shape in 1..60 {
        let (messages, options) = chat(shape * 7919, || "x".into());
        if let Ok(RenderedChat { text, template_spans }) = template.render_with_spans(&messages, &options, true) {
            template_spans.into_iter().for_each(|span| marks_in(&text[span], &mut marks));
        }
    }
    marks.extend(ABSENT.map(str::to_owned));
    let marks: Vec<String> = marks.into_iter().collect();
    let mut counts = [0; 3];
    for way in 0..3 {
        let tokenizer = vocabulary(&marks, way);
        let is_mark = (0..u32::try_from(marks.len()).unwrap()).collect();
        let case = Case { template, tokenizer, marks: marks.clone(), is_mark };
        for shape in 0..count {
            let shape = (seed + shape * 3 + way as u64 + 1).wrapping_mul(0x5851_f42d_4c95_7f2d);
            counts[case.compare(name, shape).map_or(2, |same| usize::from(!same))] += 1;
        }
    }
    counts
}

fn all_compared(templates: Vec<(String, String)>, count: u64) -> [usize; 3] {
    let mut all = [0; 3];
    for (index, (name, source)) in templates.iter().enumerate() {
        let found = compared(name, source, 1_000_003 * index as u64, count);
        println!("{name}: {} compared, {} written otherwise, {} refused", found[0], found[1], found[2]);
        all.iter_mut().zip(found).for_each(|(all, found)| *all += found);
    }
    println!("{} compared, {} written otherwise, {} refused", all[0], all[1], all[2]);
    all
}

fn in_folder(folder: &Path) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jinja"))
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    found.sort();
    found
}

#[test]
fn no_mark_comes_from_a_message() {
    let mut templates = in_folder(&fixtures().join("templates"));
    assert!(templates.len() >= 9);
    let shared = in_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/templates"));
    if shared.is_empty() {
        println!("skipped: ../shared/templates is absent");
    }
    templates.extend(shared);
    let taking_apart = TAKING_APART.map(|source| (source.to_owned(), format!("{{%- set m = messages -%}}{source}")));
    templates.extend(taking_apart);
    let [compared, otherwise, _] = all_compared(templates, 40);
    assert!(compared > 1500 && otherwise < compared, "{compared} compared, {otherwise} otherwise");
}

/// Like [`no_mark_comes_from_a_message`], for templates that are not in the repository: those of the folder that
/// CHAT_TEMPLATES names, with FORGERY_CASES chats of each in each vocabulary.
#[test]
#[ignore = "reads a folder of templates that an environment variable names"]
fn no_mark_comes_from_a_message_in_other_templates() {
    let folder = std::env::var_os("CHAT_TEMPLATES").expect("CHAT_TEMPLATES names a folder of templates");
    let cases = std::env::var("FORGERY_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100);
    let templates = in_folder(Path::new(&folder));
    assert!(!templates.is_empty());
    let [compared, ..] = all_compared(templates, cases);
    assert!(compared > 0);
}
