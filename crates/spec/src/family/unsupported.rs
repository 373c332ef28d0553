//! Architectures that are known and not supported: their kind, and the nearest alternative. Tables hold only data.
//!
//! Names are the `model_type` of transformers 5 (`configuration_auto.py`), the `general.architecture` of llama.cpp
//! (`gguf-py/gguf/constants.py`), and names of older models, all without case and separators.

const EXPERTS: &str =
    "a mixture of experts that is routed or built otherwise; models of the supported architectures run";
const VISION: &str = "a wrapper of a language model that also sees or hears; text-only models of the supported \
                      architectures run";
const STATE: &str = "a state-space or recurrent model, or a hybrid with one; transformers of the supported \
                     architectures run";
const ENCODER: &str = "an encoder: it does not generate text; decoder models of the supported architectures run";
const SEQUENCE: &str = "an encoder-decoder; decoder models of the supported architectures run";
const OTHER_BLOCK: &str = "a dense decoder whose block is built otherwise; models of the supported architectures run";
const DIFFUSION: &str = "a diffusion language model, which does not generate from left to right; models of the \
                         supported architectures run";
const OLD_PHI: &str =
    "the first upload of Phi, with other tensor names; the current upload of the same model is called phi";
const MISTRAL: &str = "Ministral 8B, whose layers differ in their windows; Mistral and Ministral 3 run";
const GEMMA: &str = "a Gemma that is built otherwise; Gemma 2 and the text of Gemma 3 and 4 run";
const LIKE_LLAMA: &str = "close to Llama, with a name of its own and no table here; Llama models run";
const NOT_TEXT: &str = "a model of sound, images or series: it does not generate text; language models of the \
                        supported architectures run";

/// Kinds of models, each with the names of its architectures.
#[rustfmt::skip]
pub const UNSUPPORTED: &[(&str, &[&str])] = &[
    (OLD_PHI, &["phimsft", "mixformersequential"]),
    (MISTRAL, &["ministral"]),
    (EXPERTS, &[
        "dbrx", "grok", "grok1", "arctic", "deepseek", "deepseek2", "deepseekv2", "deepseekv3", "deepseekv32",
        "deepseekv4", "flexolmo", "glm4moe", "glm4moelite", "glmmoedsa", "glmdsa", "hunyuanmoe", "hunyuanv1moe",
        "ernie45moe", "bailingmoe", "bailingmoe2", "dots1", "lladamoe", "nomicbertmoe", "minimaxm2", "longcatflash",
        "jetmoe", "cohere2moe", "grovemoe", "smallthinker", "exaonemoe", "kimik2", "mimo2", "mimov2flash", "step35",
        "step3p5", "solaropen", "switchtransformers", "llamamoe", "nllbmoe", "afmoe", "laguna", "mistral4", "rnd1",
    ]),
    (VISION, &[
        "mllama", "llama4", "llama4text", "llava", "llavanext", "llavanextvideo", "llavaonevision", "llavallama",
        "llavamistral", "llavaqwen", "llavaqwen2", "vipllava", "videollava", "qwen25omni", "qwen3omnimoe", "qwen2audio",
        "phi3v", "phi4mm", "phi4multimodal", "paligemma", "idefics", "idefics2", "idefics3", "smolvlm", "internvl",
        "internvlchat", "minicpmv", "minicpmo", "pixtral", "chameleon", "cogvlm", "fuyu", "blip2", "instructblip",
        "kosmos2", "aria", "ayavision", "glm4v", "glm4vmoe", "deepseekvl", "deepseekvlv2", "deepseekocr",
        "deepseek2ocr", "janus", "multimodality", "molmo", "molmo2", "ovis", "ovis2", "florence2", "gotocr2",
        "hunyuanvl", "paddleocr", "paddleocrvl", "lfm2vl", "kimivl", "kimik25", "voxtral", "ultravox", "audioflamingo3",
        "granitespeech", "nvlmd", "emu3", "git", "step3p7", "evolla", "ernie45vlmoe",
    ]),
    (STATE, &[
        "mamba", "mamba2", "falconmamba", "falconh1", "jamba", "bamba", "zamba", "zamba2", "rwkv", "rwkv5", "rwkv6",
        "rwkv7", "rwkv6qwen2", "arwkv7", "recurrentgemma", "griffin", "xlstm", "nemotronh", "nemotronhmoe", "lfm3",
        "plamo2", "kimilinear", "minimax", "minimaxtext01", "retnet", "hyena", "stripedhyena", "olmohybrid",
        "bailinghybrid",
    ]),
    (ENCODER, &[
        "xlmrobertaxl", "distilbert", "albert", "deberta", "debertav2", "electra", "mpnet", "neobert", "jinabert",
        "jinabertv2", "jinabertv3", "eurobert", "bigbird", "ernie", "esm", "roformer", "xlnet", "funnel", "longformer",
        "squeezebert", "mobilebert", "gte", "new", "t5encoder", "gemmaembedding", "llamaembed", "rembert", "layoutlm",
        "layoutlmv3",
    ]),
    (SEQUENCE, &[
        "t5", "mt5", "umt5", "longt5", "t5gemma", "t5gemma2", "bart", "mbart", "pegasus", "marian", "m2m100",
        "blenderbot", "prophetnet", "led", "encoderdecoder", "visionencoderdecoder", "whisper", "speechtotext",
        "seamlessm4t", "trocr", "bigbirdpegasus", "plbart",
    ]),
    (DIFFUSION, &["llada", "dream", "diffusiongemma"]),
    (GEMMA, &["gemma", "gemma3n", "gemma3ntext", "vaultgemma"]),
    (LIKE_LLAMA, &["internlm3", "internlm", "yi", "aquila", "xverse", "seedoss", "exaone", "panguembedded"]),
    (OTHER_BLOCK, &[
        "baichuan", "orion", "deci", "nemotronnas", "arcee", "hyperclovax", "maincoder", "jais2", "youtu", "commandr",
        "cohere", "cohere2", "falcon", "refinedweb", "refinedwebmodel", "gpt2", "gptj", "gptneo", "gptneox",
        "gptbigcode", "starcoder", "starcoder2", "refact", "mpt", "bloom", "opt", "stablelm", "stablelmepoch", "qwen",
        "glm", "glm4", "chatglm", "codeshell", "internlm2", "minicpm", "minicpm3", "olmo", "openelm", "nemotron",
        "exaone4", "plamo", "plamo3", "plm", "bitnet", "ernie45", "hunyuandense", "hunyuanv1dense", "apertus",
        "persimmon", "codegen", "xglm", "biogpt", "ctrl", "jais", "phi3small", "helium", "diffllama", "nanochat",
        "openaigpt", "modernbertdecoder", "doge",
    ]),
    (NOT_TEXT, &[
        "clip", "siglip", "siglip2", "vit", "dinov2", "dinov3vit", "wav2vec2", "hubert", "encodec", "musicgen", "bark",
        "vits", "wavtokenizerdec", "detr", "sam", "sam2", "swin", "convnext", "resnet", "timesfm", "chronos",
        "timmwrapper", "clap", "mimi", "moshi", "csm", "parakeetctc", "moonshine",
    ]),
];

/// Keys that show the kind of an architecture in no table: the key after the architecture's name in GGUF, the key in
/// `config.json`, the kind. The first that is present, and not 0, false or an empty object, counts.
#[rustfmt::skip]
pub(crate) const TELLING: &[(&str, &str, &str)] = &[
    ("",                     "vision_config",      VISION),
    ("",                     "audio_config",       VISION),
    ("",                     "is_encoder_decoder", SEQUENCE),
    (".decoder_start_token_id", "",                SEQUENCE),
    (".ssm.state_size",      "state_size",         STATE),
    (".ssm.conv_kernel",     "mamba_d_state",      STATE),
    (".wkv.head_size",       "rwkv_version",       STATE),
    (".expert_count",        "num_local_experts",  EXPERTS),
    ("",                     "num_experts",        EXPERTS),
    ("",                     "n_routed_experts",   EXPERTS),
    ("",                     "moe_num_experts",    EXPERTS),
    (".pooling_type",        "",                   ENCODER),
];
