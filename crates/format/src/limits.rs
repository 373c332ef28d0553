//! Every limit on what a file may claim, with the reason for its value.
//!
//! A limit turns an absurd claim into an error before anything is allocated. Claims within a limit are also checked
//! against the length of the file: nothing is allocated for bytes that do not exist.

/// Bytes of a GGUF file before its tensor data. The largest real headers (a vocabulary of 256k tokens with scores,
/// types and merges, or 100k tensor infos) have 10 to 35 MB; llama.cpp allows a single string 1 GiB.
pub const GGUF_HEADER_BYTES: u64 = 256 << 20;

/// Key-value pairs in one GGUF file. Real files have fewer than a hundred; each takes some hundred bytes of memory.
pub const GGUF_KEYS: u64 = 1 << 16;

/// Bytes of a GGUF key: ggml `docs/gguf.md`.
pub const GGUF_KEY_BYTES: u64 = 65_535;

/// Bytes of a GGUF tensor name: ggml keeps names in 64 bytes with a terminator (`GGML_MAX_NAME`).
pub const GGUF_TENSOR_NAME_BYTES: u64 = 63;

/// Bytes of a GGUF string that is a name, a word or a template; the longest published template has about 20 kB. Arrays
/// and unknown keys are limited only by the header.
pub const GGUF_TEXT_BYTES: usize = 1 << 20;

/// Dimensions of a GGUF tensor: `GGML_MAX_DIMS`.
pub const GGUF_DIMENSIONS: u32 = 4;

/// Tensors in one file of either format. The largest mixture-of-experts models have about 150,000.
pub const TENSORS: u64 = 1 << 20;

/// Bytes of a safetensors header: the reference reader's `MAX_HEADER_SIZE`.
pub const SAFETENSORS_HEADER_BYTES: u64 = 100_000_000;

/// Bytes of a safetensors tensor name. Published ones stay under 200.
pub const SAFETENSORS_NAME_BYTES: usize = 4096;

/// Dimensions of a safetensors tensor. The format has no limit; PyTorch's own is 64.
pub const SAFETENSORS_DIMENSIONS: usize = 64;

/// Bytes of a shard index. An index of 150,000 tensors has about 15 MB.
pub const INDEX_BYTES: u64 = 64 << 20;

/// Bytes of `config.json` and its companions. Real ones stay under 2 MB.
pub const JSON_BYTES: u64 = 8 << 20;

/// Values in one of these files, or in the kept part of a `tokenizer.json`. The largest published `tokenizer_config.json` has
/// about 50,000; a value takes up to 600 bytes, an object of eight bytes of text among them.
pub const JSON_VALUES: usize = 1 << 18;

/// Entries of a folder that are looked at. Model repositories have fewer than a thousand files.
pub const FOLDER_ENTRIES: usize = 100_000;

/// Files of unknown extension, or folders, that are opened to search for a model where no name shows one.
pub const FOLDER_GUESSES: usize = 256;

/// Parts of one model that a file name may claim: `-%05d-of-%05d` has five digits.
pub const PARTS: u64 = 99_999;

/// Bytes of a `tokenizer.json`. The largest published ones have about 35 MB.
pub const TOKENIZER_JSON_BYTES: u64 = 256 << 20;

/// Bytes of a `vocab.json` or a `merges.txt`. The largest published ones have about 10 MB.
pub const VOCABULARY_BYTES: u64 = 64 << 20;

/// Bytes of a SentencePiece `tokenizer.model`, or of a vocabulary in tiktoken's form. The largest published ones have about 5 MB; a piece takes at least five
/// bytes of the file and ten times that in memory.
pub const SENTENCE_PIECE_BYTES: u64 = 16 << 20;

/// Bytes of a chat template file. The longest published ones have about 20 kB.
pub const CHAT_TEMPLATE_BYTES: u64 = 1 << 20;

/// Chat templates in a folder of them. Published models have up to three.
pub const CHAT_TEMPLATES: usize = 64;
