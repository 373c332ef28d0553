//! Chat template -> the format in which its model calls tools.

use serde::Serialize;
use std::fmt;

/// How a model writes a call of a tool, by the name that vLLM's tool parsers have for it. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallFormat {
    /// Hermes, Qwen2.5, Qwen3, Granite 4: `<tool_call>{"name": .., "arguments": {..}}</tool_call>`.
    Hermes,
    /// Qwen3-Coder, Qwen3.5: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`.
    Qwen3Xml,
    /// Llama 3: `{"name": .., "parameters": {..}}` as the whole answer, `<|python_tag|>` in front or not.
    Llama3Json,
    /// DeepSeek V3 and R1: `<｜tool▁call▁begin｜>function<｜tool▁sep｜>`, the name, the arguments as a block of JSON,
    /// `<｜tool▁call▁end｜>`.
    DeepseekV3,
    /// DeepSeek V3.1: `<｜tool▁call▁begin｜>`, the name, `<｜tool▁sep｜>`, the arguments, `<｜tool▁call▁end｜>`.
    DeepseekV31,
    /// Phi-4-mini, Granite 3: `<|tool_call|>[{"name": .., "arguments": {..}}]<|/tool_call|>`.
    Phi4MiniJson,
    /// Mistral until Nemo: `[TOOL_CALLS][{"name": .., "arguments": {..}, "id": ".."}]`.
    Mistral,
    /// Mistral Small 3.2, Ministral 3: `[TOOL_CALLS]`, the name, an id behind `[CALL_ID]` or none, `[ARGS]`, the arguments.
    MistralArgs,
    /// gpt-oss: a message to `functions.NAME`.
    Harmony,
    /// Gemma 4: `<|tool_call>call:NAME{key:<|"|>text<|"|>}<tool_call|>`.
    Gemma4,
    /// LFM2: `<|tool_call_start|>[name(key="value")]<|tool_call_end|>`.
    Lfm2,
    /// OLMo 3: `<function_calls>name(key="value")</function_calls>`.
    Olmo3,
}

/// What tells a format: all of these texts are in the template. The first row that holds counts; marks that others share come
/// behind theirs, and those of formats that are not known first.
const MARKS: [(&[&str], Option<ToolCallFormat>); 23] = [
    (&["<|channel|>", "functions."], Some(ToolCallFormat::Harmony)),
    (&["<|tool_call>"], Some(ToolCallFormat::Gemma4)),
    (&["<｜tool▁call▁begin｜>", "```json"], Some(ToolCallFormat::DeepseekV3)),
    (&["<｜tool▁call▁begin｜>"], Some(ToolCallFormat::DeepseekV31)),
    (&["[TOOL_CALLS]", "[ARGS]"], Some(ToolCallFormat::MistralArgs)),
    (&["[TOOL_CALLS]"], Some(ToolCallFormat::Mistral)),
    (&["<seed:tool_call>"], None),
    (&["<arg_key>"], None),
    (&["<invoke name="], None),
    (&["<tool_calls>"], None),
    (&["<function=", "<parameter="], Some(ToolCallFormat::Qwen3Xml)),
    (&["<function="], None),
    (&["<|tool_call_start|>"], Some(ToolCallFormat::Lfm2)),
    (&["<|tool_list_start|>"], Some(ToolCallFormat::Lfm2)),
    (&["<|tool_response_start|>"], Some(ToolCallFormat::Lfm2)),
    (&["List of tools: ["], Some(ToolCallFormat::Lfm2)),
    (&["<function_calls>"], Some(ToolCallFormat::Olmo3)),
    (&["<|tool_call|>"], Some(ToolCallFormat::Phi4MiniJson)),
    // Phi-4-mini's template has the tools alone, within these.
    (&["<|tool|>", "<|/tool|>"], Some(ToolCallFormat::Phi4MiniJson)),
    (&["<tool_call>", "arguments"], Some(ToolCallFormat::Hermes)),
    (&["<|python_tag|>"], Some(ToolCallFormat::Llama3Json)),
    (&["ipython", "{\"name\": \"", "\"parameters\": "], Some(ToolCallFormat::Llama3Json)),
    (&["ipython", "{\\\"name\\\": \\\"", "\\\"parameters\\\": "], Some(ToolCallFormat::Llama3Json)),
];

impl ToolCallFormat {
    /// The format that the marks in a template tell, and these marks; `None` where it has none.
    pub fn of(template: &str) -> Option<(ToolCallFormat, &'static [&'static str])> {
        let (marks, format) = MARKS.iter().find(|(marks, _)| marks.iter().all(|mark| template.contains(mark)))?;
        format.map(|format| (format, *marks))
    }
}

impl fmt::Display for ToolCallFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ToolCallFormat::Hermes => "hermes",
            ToolCallFormat::Qwen3Xml => "qwen3_xml",
            ToolCallFormat::Llama3Json => "llama3_json",
            ToolCallFormat::DeepseekV3 => "deepseek_v3",
            ToolCallFormat::DeepseekV31 => "deepseek_v31",
            ToolCallFormat::Phi4MiniJson => "phi4_mini_json",
            ToolCallFormat::Mistral => "mistral",
            ToolCallFormat::MistralArgs => "mistral_args",
            ToolCallFormat::Harmony => "harmony",
            ToolCallFormat::Gemma4 => "gemma4",
            ToolCallFormat::Lfm2 => "lfm2",
            ToolCallFormat::Olmo3 => "olmo3",
        })
    }
}
