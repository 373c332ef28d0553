"""Writes random-weight checkpoints of real geometry, for speed and memory; nobody should read what they say.

    python benches/make_model.py --geometry tinyllama-1.1b --dtype BF16 --format safetensors --out models/tinyllama
    python benches/make_model.py --geometry tinyllama-1.1b --dtype W8A8 --format safetensors --out models/tinyllama-w8a8
    python benches/make_model.py --geometry llama-3.1-8b --dtype Q4_K_M --format gguf --out models/llama-8b-q4_k_m.gguf

The tokenizer has the real size and kind, made up by rule. Weights are streamed: one block of normal numbers is drawn
once and read from a different place for every tensor, scaled so that activations keep their size from layer to layer.
Block types are llama.cpp's own work, and W8A8 (int8 weights a channel, dynamic int8 activations a token, head as it is)
that of compressed-tensors, from a BF16 model that is deleted afterwards. Needs what fixtures/requirements.txt lists, and
under 4 GB of memory besides the pages of the file that is being quantised; W8A8 the BF16 model twice.
"""

import argparse
import itertools
import json
import random
import shutil
import struct
import sys
from pathlib import Path
from typing import Iterator

import gguf
import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fixtures"))
from make import gguf_files, vocabulary  # noqa: E402
from make.vocabulary import Vocabulary  # noqa: E402

BLOCK = 1 << 22  # numbers drawn once: 16 MiB of float32
SHARD_BYTES = 5_000_000_000
ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


# Llama 3.1's special tokens at their real ids, counted from 128000; what is not named here is reserved.
LLAMA3_NAMED = {0: "<|begin_of_text|>", 1: "<|end_of_text|>", 4: "<|finetune_right_pad_id|>", 6: "<|start_header_id|>",
                7: "<|end_header_id|>", 8: "<|eom_id|>", 9: "<|eot_id|>", 10: "<|python_tag|>"}


def llama3_rope(factor: float) -> dict:
    """Llama 3.1's and 3.2's scaling."""
    return {"rope_type": "llama3", "rope_theta": 500000.0, "factor": factor, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


GEOMETRIES = {
    "tinyllama-1.1b": dict(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
        head_dim=64, vocab_size=32000, max_position_embeddings=2048, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
    "llama-3.2-1b": dict(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
        head_dim=64, vocab_size=128256, max_position_embeddings=131072, tie_word_embeddings=True,
        rope_parameters=llama3_rope(32.0)),
    "llama-3.1-8b": dict(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
        head_dim=128, vocab_size=128256, max_position_embeddings=131072, tie_word_embeddings=False,
        rope_parameters=llama3_rope(8.0)),
}


def invented_words(known: list[str], count: int, longest: int, start: str, seed: int) -> list[tuple[str, str]]:
    """`count` merges of letters into longer and longer words, some of them beginning with the space sign `start`."""
    rng, made, pairs = random.Random(seed), set(known), []
    left = [start] + list("etaoinshrdlucmfwypvbgkjqxz")
    right = left[1:]
    while len(pairs) < count:
        a, b = left[int(len(left) * rng.random() ** 2)], right[int(len(right) * rng.random() ** 2)]
        if len(a) + len(b) > longest or a + b in made:
            continue
        made.add(a + b)
        pairs.append((a, b))
        left.append(a + b)
        if not a.startswith(start):
            right.append(a + b)
    return pairs


def tinyllama_vocabulary(size: int) -> Vocabulary:
    """A SentencePiece-like vocabulary: three specials, 256 bytes, invented words by rank, single characters."""
    characters = ["▁"] + [chr(code) for code in range(0x21, 0x7F)] + [chr(code) for code in range(0xA1, 0x250)]
    words = [a + b for a, b in invented_words(characters, size - 259 - len(characters), 10, "▁", seed=1)]
    texts = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + words + characters
    return vocabulary.tinyllama_of([(text, -float(max(0, rank - 259))) for rank, text in enumerate(texts)])


def llama3_vocabulary(size: int) -> Vocabulary:
    """A byte-level vocabulary: 256 bytes, invented merges, and Llama 3's 256 special tokens at the end."""
    reserved = (f"<|reserved_special_token_{count}|>" for count in itertools.count())
    specials = [LLAMA3_NAMED.get(index) or next(reserved) for index in range(256)]
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = invented_words(bytes_, size - 512, 14, "Ġ", seed=2)
    entries = {text: index for index, text in enumerate(bytes_ + [a + b for a, b in merges])}
    tokenizer = Tokenizer(models.BPE(entries, merges, ignore_merges=True))
    return vocabulary.llama3_of(tokenizer, specials, "<|eot_id|>", vocabulary.LLAMA3_TEMPLATE)


def checkpoint(geometry: str) -> tuple[LlamaConfig, Vocabulary]:
    """The config and the tokenizer of a geometry."""
    sizes = GEOMETRIES[geometry]
    make = tinyllama_vocabulary if geometry.startswith("tinyllama") else llama3_vocabulary
    words = make(sizes["vocab_size"])
    assert len(words) == sizes["vocab_size"]
    stops = [words.id(text) for text in ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>")]
    config = LlamaConfig(**sizes, rms_norm_eps=1e-5, bos_token_id=words.id(words.bos),
                         eos_token_id=words.id(words.eos) if words.kind == "llama" else stops,
                         architectures=["LlamaForCausalLM"])
    return config, words


def shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor by its Hugging Face name, in the order they are written."""
    hidden, wide = config.hidden_size, config.intermediate_size
    q, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    layer = {"input_layernorm": (hidden,), "self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden),
             "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q), "post_attention_layernorm": (hidden,),
             "mlp.gate_proj": (wide, hidden), "mlp.up_proj": (wide, hidden), "mlp.down_proj": (hidden, wide)}
    all_shapes = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for index in range(config.num_hidden_layers):
        all_shapes |= {f"model.layers.{index}.{part}.weight": shape for part, shape in layer.items()}
    all_shapes["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        all_shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return all_shapes


class Numbers:
    """One block of normal numbers, read from a place of its own for every tensor."""

    def __init__(self):
        self.block = np.random.default_rng(5).standard_normal(BLOCK, dtype=np.float32)
        self.tensors = 0

    def pieces(self, shape: tuple[int, ...], dtype: str) -> Iterator[np.ndarray]:
        """The next tensor's values as consecutive flat pieces in the stored form."""
        self.tensors += 1
        start, left = self.tensors * 1_299_709 % BLOCK, int(np.prod(shape))
        while left:
            piece = self.block[start:start + left]
            yield stored(1.0 + 0.05 * piece if len(shape) == 1 else piece * np.float32(shape[-1] ** -0.5), dtype)
            left, start = left - len(piece), 0


    def whole(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """The next tensor's values in one flat array, with no second copy next to it."""
        values, filled = np.empty(int(np.prod(shape)), {"BF16": np.uint16, "F16": np.float16}.get(dtype, np.float32)), 0
        for piece in self.pieces(shape, dtype):
            values[filled:filled + len(piece)] = piece
            filled += len(piece)
        return values


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """float32 values as the file holds them; BF16 as 16-bit patterns, rounded to nearest even."""
    values = values.astype(np.float32)
    if dtype == "BF16":
        bits = values.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return values.astype(np.float16) if dtype == "F16" else values


def write_safetensors(path: Path, tensors: dict[str, tuple[int, ...]], dtype: str, numbers: Numbers) -> None:
    """One safetensors file: header first, then the tensors one after the other."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors.items():
        begin, end = end, end + int(np.prod(shape)) * ITEM_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in tensors.values():
            for piece in numbers.pieces(shape, dtype):
                file.write(piece.tobytes())


def shards(tensors: dict[str, tuple[int, ...]], dtype: str) -> list[dict[str, tuple[int, ...]]]:
    """The tensors in runs of at most `SHARD_BYTES`."""
    runs, filled = [{}], 0
    for name, shape in tensors.items():
        size = int(np.prod(shape)) * ITEM_BYTES[dtype]
        if runs[-1] and filled + size > SHARD_BYTES:
            runs.append({})
            filled = 0
        runs[-1][name] = shape
        filled += size
    return runs


def write_folder(folder: Path, config: LlamaConfig, words: Vocabulary, dtype: str) -> None:
    """A Hugging Face folder, in shards with an index when it is large."""
    folder.mkdir(parents=True, exist_ok=True)
    config.dtype = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[dtype]
    config.save_pretrained(folder)
    GenerationConfig(bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id).save_pretrained(folder)
    vocabulary.write_hub_style(words, folder)
    runs, numbers, where = shards(shapes(config), dtype), Numbers(), {}
    for index, tensors in enumerate(runs):
        name = "model.safetensors" if len(runs) == 1 else f"model-{index + 1:05d}-of-{len(runs):05d}.safetensors"
        write_safetensors(folder / name, tensors, dtype, numbers)
        where |= dict.fromkeys(tensors, name)
    if len(runs) > 1:
        total = sum(int(np.prod(shape)) for shape in shapes(config).values()) * ITEM_BYTES[dtype]
        index = {"metadata": {"total_size": total}, "weight_map": where}
        vocabulary.write_json(folder / "model.safetensors.index.json", index)


def write_w8a8(folder: Path, config: LlamaConfig, words: Vocabulary) -> None:
    """A compressed-tensors folder, by way of a BF16 one next to it."""
    import torch
    from compressed_tensors.compressors import ModelCompressor
    from make import int8
    from transformers import LlamaForCausalLM
    middle = folder.with_name(folder.name + ".bf16")
    try:
        write_folder(middle, config, words, "BF16")
        model = LlamaForCausalLM.from_pretrained(middle, dtype=torch.bfloat16).eval()
        int8.quantise(model, "channel", "token", True, "int-quantized", torch.tensor([[1]]))
        compressor = ModelCompressor.from_pretrained_model(model, quantization_format="int-quantized")
        compressor.compress_model(model)
        model.save_pretrained(folder, max_shard_size=SHARD_BYTES)
        compressor.update_config(folder)
        vocabulary.write_hub_style(words, folder)
    finally:
        shutil.rmtree(middle, ignore_errors=True)


def write_gguf(path: Path, config: LlamaConfig, words: Vocabulary, name: str, dtype: str) -> None:
    """An F32, F16 or BF16 GGUF file; norms are F32 as llama.cpp's converter leaves them."""
    kinds = {"F32": gguf.GGMLQuantizationType.F32, "F16": gguf.GGMLQuantizationType.F16,
             "BF16": gguf.GGMLQuantizationType.BF16}
    tensors = {gguf_files.gguf_name(key): (shape, "F32" if len(shape) == 1 else dtype)
               for key, shape in shapes(config).items()}
    writer = gguf.GGUFWriter(path, "llama")
    gguf_files.write_metadata(writer, config, words, name, dtype.lower())
    rope_freqs = gguf_files.rope_freqs(config)
    if rope_freqs is not None:
        writer.add_tensor_info("rope_freqs.weight", rope_freqs.shape, rope_freqs.dtype, rope_freqs.nbytes)
    for key, (shape, held) in tensors.items():
        size = int(np.prod(shape)) * ITEM_BYTES[held]
        writer.add_tensor_info(key, shape, np.dtype(np.float32), size, raw_dtype=kinds[held])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    if rope_freqs is not None:
        writer.write_tensor_data(rope_freqs)
    numbers = Numbers()
    for shape, held in tensors.values():
        writer.write_tensor_data(numbers.whole(shape, held))
    writer.close()


def write_quantised(path: Path, config: LlamaConfig, words: Vocabulary, name: str, dtype: str, threads: int) -> None:
    """A block-quantised GGUF, by way of a BF16 one next to it."""
    middle = path.with_name(path.name + ".bf16")
    try:
        write_gguf(middle, config, words, name, "BF16")
        gguf_files.quantise(middle, path, dtype.lower(), threads)
    finally:
        middle.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--geometry", required=True, choices=GEOMETRIES)
    dtypes = [*map(str.upper, gguf_files.FILE_TYPES), "W8A8"]
    parser.add_argument("--dtype", required=True, type=str.upper, choices=dtypes)
    parser.add_argument("--format", required=True, choices=["safetensors", "gguf"])
    parser.add_argument("--out", required=True, type=Path, help="a folder for safetensors, a file for GGUF")
    parser.add_argument("--threads", type=int, default=2, help="threads of llama.cpp's quantiser")
    arguments = parser.parse_args()
    if arguments.format == "safetensors" and arguments.dtype not in (*ITEM_BYTES, "W8A8"):
        parser.error(f"safetensors has no {arguments.dtype}: choose one of {', '.join(ITEM_BYTES)}, W8A8")
    if arguments.format == "gguf" and arguments.dtype == "W8A8":
        parser.error("W8A8 is a safetensors format")
    config, words = checkpoint(arguments.geometry)
    if arguments.dtype == "W8A8":
        return write_w8a8(arguments.out, config, words)
    if arguments.format == "safetensors":
        return write_folder(arguments.out, config, words, arguments.dtype)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write = write_gguf if arguments.dtype in ITEM_BYTES else write_quantised
    extra = () if arguments.dtype in ITEM_BYTES else (arguments.threads,)
    write(arguments.out, config, words, f"Random {arguments.geometry}", arguments.dtype, *extra)


if __name__ == "__main__":
    main()
