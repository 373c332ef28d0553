//! The pre-tokenizers of GGUF byte-level BPE vocabularies by name: patterns and flags, as data.

/// How the pre-tokenizer of a `tokenizer.ggml.pre` splits a text before merging.
#[derive(Debug, PartialEq, Eq)]
pub struct PreTokenizer {
    /// The values of the key that mean this pre-tokenizer, with spaces between them.
    pub names: &'static str,
    /// Whether a text is first normalized to Unicode's composed form (NFC).
    pub nfc: bool,
    /// Regular expressions applied in order; matches, and the gaps between them, are the pieces.
    pub patterns: &'static [&'static str],
    /// Whether a piece that is a token is taken as a whole, without merging.
    pub ignore_merges: bool,
    /// Whether BOS is added when `tokenizer.ggml.add_bos_token` is absent.
    pub add_bos: bool,
}

/// The pre-tokenizer called `name`.
pub fn find(name: &str) -> Option<&'static PreTokenizer> {
    PRE_TOKENIZERS.iter().find(|pre| pre.names.split(' ').any(|known| known == name))
}

/// Every known name, for an error message.
pub fn names() -> String {
    PRE_TOKENIZERS.iter().flat_map(|pre| pre.names.split(' ')).collect::<Vec<_>>().join(", ")
}

const LLAMA3: &str = r#"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"#;
const QWEN2: &str =
    r#"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"#;
// Spaces in a row are cut by powers of two.
const JAIS2: &str = r#"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"#;
// Line ends do not belong to marks.
const SEED: &str =
    r#"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"#;
// Combining marks belong to words (transformers `tokenization_qwen3_5.py`).
const QWEN35: &str = r#"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"#;
const LING: &str =
    r#"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"#;
const EXAONE: &str = r#"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"#;
const GPT2: &str = r#"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"#;
const GPT4O: &str = r#"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"#;
const TEKKEN: &str = r#"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"#;
// Letters that have a case. Escaped where Unicode normalization would change the character.
const CASED_LETTERS: &str = r#"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\x{1F5F}-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌ\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝ\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}ℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"#;
// Chinese characters are apart from other letters (`tokenization_kimi.py`).
const KIMI: &str = r#"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"#;
/// Numbers of Trinity's tokenizer.json: groups of 510 digits from the end on, in these the front of groups of three, and these.
pub const LONG_NUMBERS: &str = r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}";
/// See [`LONG_NUMBERS`].
pub const FRONT_OF_NUMBERS: &str = r"\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)";
/// See [`LONG_NUMBERS`].
pub const THREES_OF_NUMBERS: &str = r"\A\p{Nd}{3}|\G\p{Nd}{3}";
/// Numbers of Cohere's Tiny Aya and North: groups of three digits from the end on, but for numbers that a word goes on after.
pub const NUMBERS_OF_WORDS: &str = r"\d{1,3}(?=(?:\d{3})*\b)";
// Scripts without spaces between words, each by itself; llama.cpp joins them, and begins compatibility ideographs at U+8C48.
const SCRIPTS: &str = r"(?:[\u4E00-\u9FFF\u3040-\u309F\u30A0-\u30FF\u3400-\u4DBF\uf900-\uFAFF\uFF65-\uFF9F\u2F00-\u2FDF]+|[\u0E00-\u0E7F]+|[\u0E80-\u0EFF]+|[\u1780-\u17FF]+|[\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF]+|[\uAC00-\uD7AF\u1100-\u11FF]+)";
const MARKED: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const CJK: &str = r#"[一-龥ࠀ-一가-퟿]+"#;

const PLAIN: PreTokenizer = PreTokenizer { names: "", nfc: false, patterns: &[], ignore_merges: false, add_bos: false };

/// The known pre-tokenizers (llama.cpp `llama-vocab.cpp`; regular expressions in the form of the original tokenizer.json).
pub const PRE_TOKENIZERS: &[PreTokenizer] = &[
    PreTokenizer {
        names: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        patterns: &[LLAMA3],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    // Llama 3's vocabulary without its BOS, as in SmolLM3. Its tokenizer.json takes words as a whole, like Llama 3's;
    // llama.cpp merges them, which splits 588 words of that vocabulary.
    PreTokenizer { names: "smaug-bpe glm4 glm5", patterns: &[LLAMA3], ignore_merges: true, ..PLAIN },
    // Used by OLMo 2 and 3, Granite 4 and Phi-4.
    PreTokenizer { names: "dbrx chatglm-bpe", patterns: &[LLAMA3], ..PLAIN },
    // NFC is the normalizer of Qwen's tokenizer.json; llama.cpp has none and differs on text that is not composed.
    // DeepSeek's distills have Qwen's tokenizer with other special tokens: transformers opens theirs as Qwen2Tokenizer,
    // which composes (transformers pull request 48211), so theirs is composed too.
    PreTokenizer { names: "qwen2 deepseek-r1-qwen", nfc: true, patterns: &[QWEN2], ..PLAIN },
    PreTokenizer { names: "qwen35", nfc: true, patterns: &[QWEN35], ..PLAIN },
    PreTokenizer { names: "stablelm2 megrez hunyuan solar-open grok-2 kormo f2llmv2", patterns: &[QWEN2], ..PLAIN },
    PreTokenizer {
        names: "gpt-2 phi-2 jais gigachat a.x-4.0 mellum exaone4 trillion granite-docling roberta-bpe",
        patterns: &[GPT2],
        ..PLAIN
    },
    // GPT-NeoX's tokenizer, which composes (transformers `tokenization_gpt_neox.py`); OLMo 1, OLMoE and ModernBERT have it too.
    PreTokenizer { names: "olmo mpt modern-bert", nfc: true, patterns: &[GPT2], ..PLAIN },
    // Granite 2 and 3 have the name `refact`.
    PreTokenizer {
        names: "smollm starcoder refact codeshell exaone minerva-7b mellum2",
        patterns: &[r#"\p{N}"#, GPT2],
        ..PLAIN
    },
    // Cohere's tokenizer composes (transformers `tokenization_cohere.py`).
    PreTokenizer { names: "command-r", nfc: true, patterns: &[r#"\p{N}"#, GPT2], ..PLAIN },
    PreTokenizer { names: "jais-2", patterns: &[JAIS2], ..PLAIN },
    PreTokenizer { names: "laguna", patterns: &[r"[^\n]+|[\n]+", QWEN2], ..PLAIN },
    PreTokenizer { names: "seed-coder", patterns: &[SEED], ..PLAIN },
    // The published expression has possessive quantifiers, which give the same splits.
    PreTokenizer { names: "bailingmoe bailingmoe2 llada-moe", patterns: &[LING], ..PLAIN },
    PreTokenizer { names: "exaone-moe", patterns: &[EXAONE], ..PLAIN },
    PreTokenizer { names: "gpt-4o llama4 kanana2 minimax-m2 talkie", patterns: &[GPT4O], ..PLAIN },
    // llama.cpp cuts numbers by Trinity's rule, those before letters too.
    PreTokenizer { names: "tiny_aya cohere2moe", patterns: &[NUMBERS_OF_WORDS, GPT4O], ..PLAIN },
    // Digits are those of decimal numbers; llama.cpp takes other numbers with them.
    PreTokenizer {
        names: "afmoe",
        patterns: &[LONG_NUMBERS, FRONT_OF_NUMBERS, THREES_OF_NUMBERS, SCRIPTS, MARKED],
        ..PLAIN
    },
    PreTokenizer { names: "kimi-k2", patterns: &[KIMI], ..PLAIN },
    PreTokenizer { names: "tekken", patterns: &[TEKKEN], ignore_merges: true, add_bos: true, ..PLAIN },
    // Digits are split one by one (DeepSeek LLM, arXiv 2401.02954, section 2.1); llama.cpp relies on merges that join none.
    PreTokenizer {
        names: "deepseek-llm",
        patterns: &[r#"[\r\n]"#, CASED_LETTERS, r#"\s?[!-/:-~！-／：-～‘-‟　-。]+"#, r#"\s+$"#, CJK, r"\p{N}"],
        ..PLAIN
    },
    PreTokenizer {
        names: "deepseek-coder",
        patterns: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
        ..PLAIN
    },
    PreTokenizer {
        names: "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
        patterns: &[r#"\p{N}{1,3}"#, r#"[一-龥぀-ゟ゠-ヿ]+"#, MARKED],
        ..PLAIN
    },
    PreTokenizer { names: "bloom poro-chat gpt3-finnish", patterns: &[r" ?[^(\s|.,!?…。，、।۔،)]+"], ..PLAIN },
    // Falcon's tokenizer.json cuts at digits among characters that stand for bytes, which no merge of its vocabulary crosses.
    PreTokenizer {
        names: "falcon",
        patterns: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ..PLAIN
    },
    PreTokenizer {
        names: "default",
        patterns: &[r#"[\p{P}\$\+<=>\^~\|]+"#, GPT2, r#"\p{N}+"#, r#"[0-9][0-9][0-9]"#],
        ..PLAIN
    },
];
