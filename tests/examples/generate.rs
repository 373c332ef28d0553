//! The example `generate`.

use super::{example, json, model, text};
use model_factory::{ChatOptions, Message, UnifiedModelFactory};
use std::process::Output;

#[test]
fn generate_tells_a_story_on_standard_output_alone() {
    let output = example("generate", &["--prompt", "Once upon a time", "--max-tokens", "200"]);
    assert!(output.status.success());
    let story = text(&output.stdout);
    assert!(story.starts_with("Once upon a time") && story.trim_end().ends_with('.'), "{story}");
    assert!(text(&output.stderr).starts_with("compatible: "), "{}", text(&output.stderr));
}

#[test]
fn generate_chats_by_the_models_own_template() {
    let chat = |name: &str, more: &[&str]| {
        let path = model(name);
        example("generate", &[&[path.as_str(), "--chat", "Hello", "--max-tokens", "4", "--json"], more].concat())
    };
    let tokens = |output: &Output| json(output)["timings"]["prompt_tokens"].as_u64().expect("a count");
    let plain = example("generate", &[&model("smollm2/bf16"), "--prompt", "Hello", "--max-tokens", "4", "--json"]);
    let (asked, told) = (chat("smollm2/bf16", &[]), chat("smollm2/bf16", &["--system", "Be brief and kind."]));
    assert!(asked.status.success(), "{}", text(&asked.stderr));
    assert!(tokens(&asked) > tokens(&plain), "the turns' own tokens");
    assert_ne!(tokens(&told), tokens(&asked));
    let without = chat("phi-2/bf16", &[]);
    assert_eq!((without.status.code(), without.stdout.is_empty()), (Some(2), true));
    assert!(text(&without.stderr).contains("template"), "{}", text(&without.stderr));
    for option in ["--system", "--template"] {
        assert_eq!(example("generate", &[option, "x"]).status.code(), Some(2), "{option} alone");
    }
    assert!(chat("smollm2/bf16", &["--template", "default"]).status.success());
    let unknown = chat("smollm2/bf16", &["--template", "rag"]);
    assert_eq!((unknown.status.code(), unknown.stdout.is_empty()), (Some(2), true));
    assert!(text(&unknown.stderr).contains("choose one of default"), "{}", text(&unknown.stderr));
}

#[test]
fn generate_gives_tools_and_variables_to_the_template() {
    let folder = tempfile::tempdir().expect("a folder");
    for file in std::fs::read_dir(model("smollm2/bf16")).expect("the model").map(|entry| entry.expect("a file").path())
    {
        std::fs::copy(&file, folder.path().join(file.file_name().expect("a name"))).expect("a copy");
    }
    let template = "{{ raise_exception(messages[0].content ~ (tools | tojson) ~ (wish | tojson)) }}";
    std::fs::write(folder.path().join("chat_template.jinja"), template).expect("a template");
    let (path, tools) = (folder.path().display().to_string(), folder.path().join("tools"));
    let chat = |more: &[&str]| {
        let output = example("generate", &[&[path.as_str(), "--chat", "Hi"], more].concat());
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{more:?}");
        text(&output.stderr)
    };
    std::fs::write(&tools, r#"[{"type": "function"}]"#).expect("tools");
    let given = ["--tools", tools.to_str().expect("a path"), "--set", "wish={\"a\": [1, null]}"];
    let said = chat(&given);
    assert!(said.contains(r#"Hi[{"type": "function"}]{"a": [1, null]}"#), "{said}");
    for wrong in ["wish", "wish=no text"] {
        let said = chat(&["--set", wrong]);
        assert!(said.contains("--set") && said.contains("JSON"), "{said}");
    }
    std::fs::write(&tools, "{}").expect("tools");
    let output = example("generate", &[&[path.as_str(), "--chat", "Hi"], &given[..2]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("expected a JSON list"), "{}", text(&output.stderr));
}

#[test]
fn messages_of_a_file_are_the_conversation() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, file) = (model("llama-3.1/bf16"), folder.path().join("messages.json"));
    let (path, file) = (path.as_str(), file.to_str().expect("a path"));
    let given = r#"[{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi<|eot_id|>"}]"#;
    std::fs::write(file, given).expect("messages");
    let messages: Vec<Message> = serde_json::from_str(given).expect("messages");
    let loaded = UnifiedModelFactory::load(path).expect("a model");
    let expected = loaded.prompt_ids(&messages, &ChatOptions::default()).expect("ids");
    let tokenized = text(&example("tokenize", &[path, "--messages", file]).stdout);
    let ids: Vec<u32> = tokenized.split_whitespace().map(|id| id.parse().expect("an id")).collect();
    assert_eq!(ids, expected);
    let answered = json(&example("generate", &[path, "--messages", file, "--max-tokens", "2", "--json"]));
    assert_eq!(answered["timings"]["prompt_tokens"], expected.len());
    for both in [&["--chat", "Hi"][..], &["--prompt", "Hi"], &["--system", "Hi"]] {
        let output = example("generate", &[&[path, "--messages", file], both].concat());
        assert_eq!(output.status.code(), Some(2), "{both:?}");
    }
    let output = example("tokenize", &[path, "--messages", file, "--text", "Hi"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn generate_tells_thought_from_answer() {
    let path = model("r1-distill-llama/bf16");
    // The model's own generation_config.json samples, with another seed each time: a draw may be a mark of a thought.
    let fixed = [path.as_str(), "--max-tokens", "6", "--temperature", "0"];
    let ask = |more: &[&str]| example("generate", &[&fixed, more].concat());
    let report = json(&ask(&["--chat", "Hi", "--json"]));
    assert_eq!((&report["thinking"], &report["answer"]), (&report["text"], &"".into()), "the template opens a block");
    let report = json(&ask(&["--prompt", "Hi", "--json"]));
    assert_eq!((&report["thinking"], &report["answer"]), (&"".into(), &report["text"]));
    let report = json(&ask(&["--chat", "Hi", "--json", "--thinking-budget", "0"]));
    let (thinking, answer) = (report["thinking"].as_str(), report["answer"].as_str());
    assert!(thinking == Some("</think>") && answer.is_some_and(|answer| !answer.is_empty()), "{report}");
    let plain = text(&ask(&["--chat", "Hi"]).stdout);
    assert!(!plain.contains('\x1b') && plain.len() > 1, "a pipe gets only the text: {plain:?}");
}

#[test]
fn generate_reports_ids_finish_and_timings_as_json() {
    let arguments =
        ["--prompt", "Once upon a time", "--max-tokens", "5", "--temperature", "0.8", "--seed", "7", "--json"];
    let (first, second) = (json(&example("generate", &arguments)), json(&example("generate", &arguments)));
    assert_eq!(first["text"], second["text"], "one seed, one text");
    assert_eq!(first["tokens"].as_array().map(Vec::len), Some(5));
    assert_eq!((&first["finish"], &first["timings"]["seed"]), (&"length".into(), &7.into()));
}

#[test]
fn generate_reports_log_probabilities_on_request() {
    let arguments = ["--max-tokens", "3", "--json", "--logprobs", "2"];
    let report = json(&example("generate", &arguments));
    let entries = report["logprobs"].as_array().expect("a list");
    assert_eq!(entries.len(), 3);
    for (entry, token) in entries.iter().zip(report["tokens"].as_array().expect("ids")) {
        // Greedily the likeliest token is the one that was chosen.
        assert_eq!((&entry["token"], &entry["top"][0]["token"]), (token, token));
        assert_eq!(entry["top"][0]["logprob"], entry["logprob"]);
        assert_eq!(entry["top"].as_array().expect("a list").len(), 2);
    }
    assert!(json(&example("generate", &arguments[..3]))["logprobs"].is_null());
}

#[test]
fn generate_guesses_tokens_and_says_the_same() {
    let prompt = "Greta sold apples on the market square. ".repeat(4);
    let arguments = ["--json", "--prompt", &prompt, "--max-tokens", "60", "--speculate"];
    let [off, ngram] = ["off", "ngram"].map(|how| json(&example("generate", &[&arguments[..], &[how]].concat())));
    assert_eq!((&off["tokens"], &off["text"]), (&ngram["tokens"], &ngram["text"]));
    assert!(
        off["timings"]["guessed"] == 0 && ngram["timings"]["guessed"].is_u64() && ngram["timings"]["accepted"].is_u64()
    );
    assert_eq!(example("generate", &["--speculate", "draft"]).status.code(), Some(2));
    // The bundled model has no prediction head.
    assert_eq!(example("generate", &["--speculate", "mtp"]).status.code(), Some(11));
    let draft = ["--json", "--prompt", &prompt, "--max-tokens", "60", "--draft"];
    let demo = super::common::demo().display().to_string();
    let draft = json(&example("generate", &[&draft[..], &[&demo]].concat()));
    assert_eq!((&off["tokens"], &off["text"]), (&draft["tokens"], &draft["text"]));
    assert!(draft["timings"]["guessed"].is_u64());
    assert_eq!(example("generate", &["--speculate", "ngram", "--draft", &demo]).status.code(), Some(2));
    let other = model("tinyllama/bf16");
    let refused = example("generate", &["--draft", &other]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("tinyllama/bf16 cannot guess for"), "{}", text(&refused.stderr));
}

#[test]
fn generate_tells_the_seed_where_it_decided_anything() {
    let tells = |temperature: &str| {
        let output = example("generate", &["--max-tokens", "5", "--seed", "77", "--temperature", temperature]);
        assert!(output.status.success());
        text(&output.stderr).contains("seed 77")
    };
    assert!(!tells("0") && tells("0.9"));
}

#[test]
fn generate_goes_on_from_a_saved_session() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.session").display().to_string();
    let run = |more: &[&str]| {
        let arguments = ["--session", &file, "--temperature", "0", "--max-tokens", "20", "--json"];
        example("generate", &[&arguments, more].concat())
    };
    let first = json(&run(&[]));
    assert_eq!(first["timings"]["cached_tokens"], 0);
    let again = json(&run(&[]));
    assert_eq!((&again["tokens"], &again["timings"]["prompt_tokens"]), (&first["tokens"], &1.into()));
    assert!(again["timings"]["cached_tokens"].as_u64() > Some(0));
    let refused = run(&["--kv-cache", "f16"]);
    assert_eq!((refused.status.code(), refused.stdout.is_empty()), (Some(2), true));
    assert!(text(&refused.stderr).contains("a.session: the dtype of the KV cache it was saved with is \"F32\""));
}

#[test]
fn generate_ends_before_a_stop_string() {
    let arguments = ["--prompt", "Once upon a time", "--stop", "no such text", "--stop", " captain", "--json"];
    let report = json(&example("generate", &arguments));
    assert_eq!((&report["text"], &report["finish"]), (&" there was a".into(), &"stop".into()));
}

#[test]
fn generate_holds_an_answer_to_a_schema_or_a_choice() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("schema.json");
    let schema = |content: &str, more: &[&str]| {
        std::fs::write(&file, content).expect("a schema");
        let path = file.display().to_string();
        example("generate", &[&["--json-schema", &path, "--prompt", "A dog: ", "--json"], more].concat())
    };
    let dog = r#"{"type": "object", "properties": {"legs": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["legs"],
        "additionalProperties": false}"#;
    let output = schema(dog, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answer: serde_json::Value =
        serde_json::from_str(json(&output)["answer"].as_str().expect("a text")).expect("JSON");
    assert!(answer["legs"].as_u64().is_some_and(|legs| legs <= 9), "{answer}");
    assert_eq!(json(&output)["finish"], "stop");
    for (content, expected) in [(r#"{"items": {"not": {}}}"#, "/items/not"), ("no JSON", "expected a JSON schema")] {
        let output = schema(content, &[]);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{content}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
    for given in [&["--choice", "wet", "--choice", "dry"][..], &["--choice", "wet,dry"]] {
        let output = example("generate", &[&["--prompt", "Water is ", "--json"], given].concat());
        assert!(["wet", "dry"].contains(&json(&output)["answer"].as_str().expect("a text")), "{given:?}");
    }
    assert_eq!(schema(dog, &["--choice", "a"]).status.code(), Some(2));
}

#[test]
fn extract_prints_a_value_of_its_type() {
    let output = example("extract", &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(["glad", "sad", "unknown"].contains(&json(&output)["mood"].as_str().expect("a mood")));
}

#[test]
fn tools_are_called_as_asked() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let tool = serde_json::json!([{"type": "function", "function": {"name": "pick", "parameters": {
        "type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"]}}}]);
    std::fs::write(file.path(), tool.to_string()).expect("it is written");
    let path = file.path().to_str().expect("UTF-8");
    let demo = super::common::demo().display().to_string();
    let run = |choice: &str| {
        let more = ["--tools", path, "--tool-choice", choice, "--max-tokens", "200", "--json"];
        example("generate", &[[demo.as_str(), "--chat", "Pick one"].as_slice(), &more].concat())
    };
    let output = run("pick");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answer = json(&output);
    let calls = answer["tool_calls"].as_array().expect("a list");
    assert_eq!((calls.len(), &calls[0]["function"]["name"]), (1, &"pick".into()));
    assert!(calls[0]["function"]["arguments"]["n"].as_i64().is_some_and(|n| (1..=9).contains(&n)), "{calls:?}");
    assert_eq!(json(&run("none"))["tool_calls"], serde_json::json!([]));
    let output = run("sing");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there is no tool sing; there is pick"), "{}", text(&output.stderr));

    let output = example("tools", &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("calculate("), "the call is told: {}", text(&output.stderr));
}

#[test]
fn classify_gives_the_likeliest_label_first() {
    let output = example("classify", &["--text", "Once upon a", "--labels", "window,time", "--question", ""]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let labels: Vec<String> = text(&output.stdout).lines().map(|line| line[7..].to_owned()).collect();
    assert_eq!(labels, ["time", "window"]);
}

#[test]
fn batch_answers_in_the_order_of_the_file_whatever_is_done_first() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "Once upon a time\n\nThe captain\nA fox\n").expect("it is written");
    let path = file.path().to_str().expect("UTF-8");
    let run =
        |concurrency: &str| example("batch", &["--file", path, "--max-tokens", "12", "--concurrency", concurrency]);
    let (together, alone) = (run("3"), run("1"));
    assert!(together.status.success(), "{}", text(&together.stderr));
    assert_eq!(together.stdout, alone.stdout);
    let prompts: Vec<serde_json::Value> =
        text(&together.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let prompts: Vec<&str> = prompts.iter().map(|line| line["prompt"].as_str().expect("a text")).collect();
    assert_eq!(prompts, ["Once upon a time", "The captain", "A fox"]);
    assert!(text(&together.stderr).contains("3 of 3"));
}

#[test]
fn generate_adds_adapters_by_their_factors() {
    let of = crate::common::adapters::named("llama-3.2");
    let (base, adapter) = (of.base("bf16").display().to_string(), of.path("first", "bf16").display().to_string());
    let run = |lora: &[&str]| {
        let fixed = [&base, "--temperature", "0", "--max-tokens", "12", "--json", "--logprobs", "0", "--prompt", "a"];
        let lora = lora.iter().flat_map(|lora| ["--lora", lora]);
        example("generate", &fixed.into_iter().chain(lora).collect::<Vec<_>>())
    };
    let logprobs = |lora: &[&str]| json(&run(lora))["logprobs"].clone();
    let (plain, tuned) = (logprobs(&[]), logprobs(&[&adapter]));
    assert_ne!(plain, tuned);
    assert_eq!(logprobs(&[&format!("{adapter}:0")]), plain);
    assert_eq!(logprobs(&[&format!("{adapter}:1.0")]), tuned);
    assert_eq!(logprobs(&[&format!("{adapter}:0.25"), &format!("{adapter}:0.75")]).as_array().map(Vec::len), Some(12));
    // A colon without a number after it is the path's.
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("a:b");
    std::fs::create_dir(&other).expect("a folder");
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(of.path("first", "bf16").join(name), other.join(name)).expect("a copy");
    }
    assert_eq!(logprobs(&[&other.display().to_string()]), tuned);
    for (lora, code) in [(":nan", 2), (":-inf", 2), (":x", 1)] {
        assert_eq!(run(&[&format!("{adapter}{lora}")]).status.code(), Some(code), "{lora}");
    }
    assert_eq!(run(&[&base]).status.code(), Some(15), "a model is no adapter");
}

#[test]
fn diagnose_tells_what_adapters_change_and_whose_they_are() {
    let of = crate::common::adapters::named("llama-3.2");
    let (base, adapter) = (of.base("bf16").display().to_string(), of.path("first", "bf16").display().to_string());
    let other = crate::common::archives::path("qwen3/bf16").display().to_string();
    let output = example("diagnose", &[&base, "--lora", &adapter, "--adapters", "2:8"]);
    // Long lines are wrapped.
    let printed = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.success(), "{printed}");
    for says in [
        "adapter ",
        "(PEFT, rank 3, 4, 6, BF16, ",
        "14 of 15 linear layers: ",
        "self_attn.q_proj 2",
        "adapters ",
        "--lora",
    ] {
        assert!(printed.contains(says), "{says}: {printed}");
    }
    let report = json(&example("diagnose", &[&base, "--lora", &adapter, "--lora", &adapter, "--json"]));
    assert_eq!(report["adapters"].as_array().map(Vec::len), Some(2));
    assert_eq!((&report["adapters"][0]["path"], &report["exit_code"]), (&adapter.clone().into(), &0.into()));
    let refused = example("diagnose", &[&other, "--lora", &adapter, "--json"]);
    assert_eq!(refused.status.code(), Some(15));
    let report: serde_json::Value = serde_json::from_slice(&refused.stdout).expect("JSON");
    assert!(report["reason"].as_str().expect("a reason").contains("lora_A.weight has shape"), "{report}");
    assert_eq!(report["adapters"], serde_json::Value::Null);
    assert_eq!(example("diagnose", &[&base, "--lora", "no/such/adapter"]).status.code(), Some(1));
    for wrong in ["0:8", "8:0", "8", "a:b"] {
        assert_eq!(example("diagnose", &[&base, "--adapters", wrong]).status.code(), Some(2), "{wrong}");
    }
}
