"""Writes random-weight GGUF files of real geometry for families besides Llama, only for speed and memory.

    python benches/make_gguf.py --geometry olmoe-7b --dtype Q4_K_M --out models/olmoe-q4_k_m.gguf
    python benches/make_gguf.py --geometry gpt-oss-20b --dtype MXFP4 --out models/gpt-oss.gguf

Keys and tensor names are those of the family's small fixture, which llama.cpp's converter has written; sizes are the
geometry's. 4 Mi random numbers are quantised once for each type and size of row, by ggml, and repeated: a file of 12 GB takes
a minute and 1 GB of memory. Needs what fixtures/requirements.txt lists.
"""

import argparse
import ctypes
import sys
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import make_model  # noqa: E402  (finds the package `make`)
from make import archives, gguf_files  # noqa: E402

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
Type = gguf.GGMLQuantizationType

# fixture: the family's small file. Sizes of the published config.json of the repository named after each.
GEOMETRIES = {
    # allenai/OLMoE-1B-7B-0924
    "olmoe-7b": dict(fixture="olmoe/q8_0", hidden=2048, layers=16, heads=16, kv=16, head=128, ff=1024, vocab=50304,
                     experts=64, used=8, wide_norms=True, context=4096),
    # openai/gpt-oss-20b
    "gpt-oss-20b": dict(fixture="gpt-oss/mxfp4", hidden=2880, layers=24, heads=64, kv=8, head=64, ff=2880,
                        vocab=201088, experts=32, used=4, context=131072, window=128, theta=150000.0),
    # Qwen/Qwen3.5-4B
    "qwen3.5-4b": dict(fixture="qwen3.5/q8_0", hidden=2560, layers=32, heads=16, kv=4, head=256, ff=9216, vocab=248320,
                       key_heads=16, value_heads=32, state=128, period=4, gated=True, context=262144),
    # Qwen/Qwen3-4B
    "qwen3-4b": dict(fixture="qwen3/q8_0", hidden=2560, layers=36, heads=32, kv=8, head=128, ff=9728, vocab=151936,
                     context=40960),
    # google/gemma-3-4b-it
    "gemma-3-4b": dict(fixture="gemma-3/q8_0", hidden=2560, layers=34, heads=8, kv=4, head=256, ff=10240, vocab=262208,
                       context=131072, window=1024),
    # HuggingFaceTB/SmolLM3-3B
    "smollm3-3b": dict(fixture="smollm3/q8_0", hidden=2048, layers=36, heads=16, kv=4, head=128, ff=11008, vocab=128256,
                       context=65536),
    # ibm-granite/granite-3.3-2b-instruct
    "granite-2b": dict(fixture="granite/q8_0", hidden=2048, layers=40, heads=32, kv=8, head=64, ff=8192, vocab=49159,
                       context=131072),
    # ibm-granite/granite-4.0-h-micro and granite-4.0-h-tiny: attention in every tenth layer from the sixth on
    "granite-4-h-micro": dict(fixture="granite-4-h-dense/f16", hidden=2048, layers=40, heads=32, kv=8, head=64, ff=8192,
                              vocab=100352, mamba_heads=64, state=128, context=131072),
    "granite-4-h-tiny": dict(fixture="granite-4-h/q8_0", hidden=1536, layers=40, heads=12, kv=4, head=128, ff=512, shared=1024,
                             vocab=100352, experts=64, used=6, mamba_heads=48, state=128, context=131072),
    # TinyLlama/TinyLlama-1.1B-Chat-v1.0, meta-llama/Llama-3.2-3B and Llama-3.1-8B
    "tinyllama-1.1b": dict(fixture="tinyllama/q8_0", hidden=2048, layers=22, heads=32, kv=4, head=64, ff=5632,
                           vocab=32000, context=2048),
    "llama-3.2-3b": dict(fixture="llama-3.2/q8_0", hidden=3072, layers=28, heads=24, kv=8, head=128, ff=8192,
                         vocab=128256, context=131072),
    "llama-3.1-8b": dict(fixture="llama-3.1/q8_0", hidden=4096, layers=32, heads=32, kv=8, head=128, ff=14336,
                         vocab=128256, context=131072),
    # allenai/OLMo-2-1124-7B
    "olmo-2-7b": dict(fixture="olmo-2/q8_0", hidden=4096, layers=32, heads=32, kv=32, head=128, ff=11008, vocab=100352,
                      wide_norms=True, context=4096),
    # tiiuae/Falcon-H1-1.5B-Instruct
    "falcon-h1-1.5b": dict(fixture="falcon-h1/q8_0", hidden=2048, layers=24, heads=8, kv=2, head=128, ff=4096, vocab=65537,
                           mamba_heads=48, state=256, attends="*", context=131072),
    # deepseek-ai/DeepSeek-V2-Lite-Chat; llama.cpp knows it by its 27 layers
    "deepseek-v2-lite": dict(fixture="deepseek-v2/q8_0", hidden=2048, layers=27, heads=16, kv=1, ff=1408, dense=10944, vocab=102400,
                             experts=64, used=6, shared=2816, latents=512, rope=64, nope=128, value=128, context=163840,
                             without=("attn_q_a", "q_lora_rank", "expert_group")),
    # zai-org/GLM-4.7-Flash, 14 of 47 layers
    "glm-4.7-flash": dict(fixture="deepseek-v3/q8_0", hidden=2048, layers=14, heads=20, kv=1, ff=1536, dense=10240, vocab=154880,
                          experts=64, used=4, shared=1536, latents=512, rope=64, nope=192, value=256, query_latents=768,
                          context=202752, theta=1e6, without=("rope.scaling", "expert_group")),
    # nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B, 13 of 52 layers
    "nemotron-3-nano": dict(fixture="nemotron-3/q8_0", hidden=2688, layers=13, heads=32, kv=2, head=128, ff=1856, vocab=131072,
                            experts=128, used=6, shared=3712, mamba_heads=64, state=128, groups=8, attends="MEMEM*EMEMEM*",
                            context=262144),
}


def shape(name: str, size: dict) -> tuple[int, ...]:
    """Rows and columns of a tensor by its name without the number of the layer."""
    hidden, ff, experts, head = size["hidden"], size["ff"], size.get("experts", 0), size.get("head", 0)
    q, kv = size["heads"] * head, size["kv"] * head
    state, value_heads = size.get("state", 0), size.get("value_heads", 0)
    inner, mixed = value_heads * state, (2 * size.get("key_heads", 0) + value_heads) * state
    if "mamba_heads" in size:  # heads of 64 elements
        inner, value_heads, groups = size["mamba_heads"] * 64, size["mamba_heads"], size.get("groups", 1)
        mixed = inner + 2 * groups * state
    asked = q * (2 if size.get("gated") else 1)
    wide = size.get("wide_norms", False)
    shapes = {
        "token_embd.weight": (size["vocab"], hidden), "output.weight": (size["vocab"], hidden),
        "attn_q.weight": (asked, hidden), "attn_k.weight": (kv, hidden), "attn_v.weight": (kv, hidden),
        "attn_output.weight": (hidden, q), "attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,),
        "attn_q_norm.weight": (q if wide else head,), "attn_k_norm.weight": (kv if wide else head,),
        "rope_freqs.weight": (head // 2,), "attn_sinks.weight": (size["heads"],),
        "ffn_gate.weight": (ff, hidden), "ffn_up.weight": (ff, hidden), "ffn_down.weight": (hidden, ff),
        "ffn_gate_inp.weight": (experts, hidden), "ffn_gate_inp.bias": (experts,),
        "ffn_gate_exps.weight": (experts, ff, hidden), "ffn_up_exps.weight": (experts, ff, hidden),
        "ffn_down_exps.weight": (experts, hidden, ff), "ffn_gate_exps.bias": (experts, ff),
        "ffn_up_exps.bias": (experts, ff), "ffn_down_exps.bias": (experts, hidden),
        "attn_qkv.weight": (mixed, hidden), "attn_gate.weight": (inner, hidden), "ssm_a": (value_heads,),
        "ssm_alpha.weight": (value_heads, hidden), "ssm_beta.weight": (value_heads, hidden),
        "ssm_conv1d.weight": (mixed, 4), "ssm_dt.bias": (value_heads,), "ssm_norm.weight": (state,),
        "ssm_out.weight": (hidden, inner),
    }
    if "shared" in size:
        shapes |= {"ffn_gate_shexp.weight": (size["shared"], hidden), "ffn_up_shexp.weight": (size["shared"], hidden),
                   "ffn_down_shexp.weight": (hidden, size["shared"]), "exp_probs_b.bias": (experts,)}
    if "mamba_heads" in size:
        shapes |= {"ssm_in.weight": (inner + mixed + value_heads, hidden), "ssm_conv1d.bias": (mixed,),
                   "ssm_norm.weight": (groups, inner // groups), "ssm_a": (value_heads, 1), "ssm_d": (value_heads, 1)}
    if "latents" in size:
        heads, latents, dense, queries = size["heads"], size["latents"], size["dense"], size.get("query_latents", hidden)
        rows = heads * (size["nope"] + size["rope"])
        shapes |= {"attn_q.weight": (rows, hidden), "attn_q_a.weight": (queries, hidden), "attn_q_a_norm.weight": (queries,),
                   "attn_q_b.weight": (rows, queries), "attn_kv_a_mqa.weight": (latents + size["rope"], hidden),
                   "attn_kv_a_norm.weight": (latents,), "attn_k_b.weight": (heads, latents, size["nope"]),
                   "attn_v_b.weight": (heads, size["value"], latents), "attn_output.weight": (hidden, heads * size["value"]),
                   "ffn_gate.weight": (dense, hidden), "ffn_up.weight": (dense, hidden), "ffn_down.weight": (hidden, dense)}
    return shapes.get(name, (hidden,))


def keys(size: dict) -> dict[str, object]:
    """Numbers of the geometry by the ends of their keys."""
    head = size.get("head", 1)
    found = {"block_count": size["layers"], "context_length": size["context"], "embedding_length": size["hidden"],
             "feed_forward_length": size["ff"], "attention.head_count": size["heads"],
             "attention.head_count_kv": size["kv"], "attention.key_length": head,
             "attention.value_length": head, "attention.sliding_window": size.get("window"),
             "expert_count": size.get("experts"), "expert_used_count": size.get("used"),
             "expert_feed_forward_length": size["ff"], "vocab_size": size["vocab"],
             "rope.dimension_count": head // (4 if "period" in size else 1),
             "attention.scale": head ** -0.5, "rope.freq_base": size.get("theta")}
    if "period" in size:
        found |= {"ssm.state_size": size["state"], "ssm.group_count": size["key_heads"],
                  "ssm.time_step_rank": size["value_heads"], "ssm.inner_size": size["value_heads"] * size["state"],
                  "attention.recurrent_layers": [(layer + 1) % 4 != 0 for layer in range(size["layers"])],
                  "rope.dimension_sections": [11, 11, 10, 0]}
    if "mamba_heads" in size:
        layers = range(size["layers"])
        found |= {"ssm.state_size": size["state"], "ssm.group_count": size.get("groups", 1), "ssm.time_step_rank": size["mamba_heads"],
                  "ssm.inner_size": size["mamba_heads"] * 64, "expert_shared_feed_forward_length": size.get("shared")}
        if size.get("attends") != "*":
            found["attention.head_count_kv"] = [size["kv"] if kind_of_layer(size, layer) == "*" else 0 for layer in layers]
        if "E" in size.get("attends", ""):
            found["feed_forward_length"] = [size["ff"] if kind_of_layer(size, layer) == "E" else 0 for layer in layers]
    if "latents" in size:
        found |= {"feed_forward_length": size["dense"], "attention.key_length": size["latents"] + size["rope"],
                  "attention.value_length": size["latents"], "attention.key_length_mla": size["nope"] + size["rope"],
                  "attention.value_length_mla": size["value"], "attention.kv_lora_rank": size["latents"],
                  "attention.q_lora_rank": size.get("query_latents"), "rope.dimension_count": size["rope"],
                  "expert_shared_count": size["shared"] // size["ff"]}
    return {key: value for key, value in found.items() if value is not None}


def kind_of_layer(size: dict, layer: int) -> str:
    """What a layer of a hybrid is: `*` attends, `M` has states, `E` has experts. Granite 4 attends in every tenth from the sixth on."""
    pattern = size.get("attends", "MMMMM*MMMM")
    return pattern[layer % len(pattern)]


def small_layer(size: dict, layer: int, by_layer: dict[int, dict[str, Type]]) -> dict[str, Type]:
    """The layer of the fixture that is of the same kind."""
    if "mamba_heads" in size:
        kind = kind_of_layer(size, layer)
        has = {"*": "attn_q.weight", "M": "ssm_in.weight", "E": "ffn_gate_inp.weight"}
        return next(parts for parts in by_layer.values() if has[kind] in parts)
    return by_layer[min(layer, 1) if "latents" in size else layer % size["period"] if "period" in size else 0]


class Blocks:
    """Random numbers in the form of a type, one run of them for each type and size of row."""

    def __init__(self):
        self.ggml = ctypes.CDLL(str(Path(llama_cpp.llama_cpp._lib._name).with_name("libggml-base.so")))
        self.ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
        self.block = np.random.default_rng(5).standard_normal(make_model.BLOCK, dtype=np.float32)
        self.made: dict[tuple[Type, int], bytes] = {}

    def rows(self, kind: Type, columns: int) -> bytes:
        """Whole rows, about 4 Mi numbers, scaled so that activations keep their size."""
        if (kind, columns) not in self.made:
            count = make_model.BLOCK // columns
            source = self.block[:count * columns] * np.float32(columns ** -0.5)
            per_block, size = gguf.GGML_QUANT_SIZES[kind]
            target = np.empty(count * columns // per_block * size, np.uint8)
            floats = source.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            wrote = self.ggml.ggml_quantize_chunk(ctypes.c_int(kind), floats, ctypes.c_void_p(target.ctypes.data),
                                                  ctypes.c_int64(0), ctypes.c_int64(count), ctypes.c_int64(columns), None)
            assert wrote == target.nbytes, (kind, columns)
            self.made[kind, columns] = target.tobytes()
        return self.made[kind, columns]


def fixture(name: str) -> Path:
    """The small file of a family, which may lie in an archive."""
    path = FIXTURES / "models" / f"{name}.gguf"
    if path.exists():
        return path
    family, file = name.split("/")
    return archives.unpacked(FIXTURES / "families", family) / f"{file}.gguf"


def kind(name: str, small: Type, dtype: str, layer: int, size: dict) -> Type:
    """The type of a tensor: F32 where the fixture has it, else llama.cpp's mixture of the file type in outline."""
    if small == Type.F32:
        return Type.F32
    if dtype == "MXFP4":
        return Type.MXFP4 if "_exps." in name else Type.Q8_0
    if dtype != "Q4_K_M":
        return Type[dtype]
    tied = "output" if "output.weight" in size["top"] else "token_embd"
    more = layer < size["layers"] // 8 or layer >= 7 * size["layers"] // 8 or (layer - size["layers"] // 8) % 3 == 2
    six = name.startswith(tied) or (more and name.startswith(("attn_v.", "ffn_down")))
    return Type.Q6_K if six else Type.Q4_K


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--geometry", required=True, choices=GEOMETRIES)
    parser.add_argument("--dtype", required=True, type=str.upper, choices=["Q4_K_M", "Q8_0", "BF16", "F16", "MXFP4"])
    parser.add_argument("--out", required=True, type=Path)
    arguments = parser.parse_args()
    size = GEOMETRIES[arguments.geometry]
    small = gguf.GGUFReader(fixture(size["fixture"]))
    by_layer: dict[int, dict[str, Type]] = {}
    top = {}
    for tensor in small.tensors:
        head, _, rest = tensor.name.partition(".")
        if head == "blk":
            layer, _, part = rest.partition(".")
            by_layer.setdefault(int(layer), {})[part] = tensor.tensor_type
        else:
            top[tensor.name] = tensor.tensor_type
    size = size | {"top": top}

    arch = small.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(arguments.out, arch)
    known = keys(size)
    for key, field in small.fields.items():
        if key.startswith(("GGUF.", "tokenizer.")) or key == "general.architecture":
            continue
        if any(f".{name}" in key for name in size.get("without", ())):
            continue
        value = known.get(key.removeprefix(f"{arch}."), field.contents())
        writer.add_key_value(key, value, field.types[0], field.types[-1] if len(field.types) > 1 else None)
    gguf_files.write_tokenizer(writer, make_model.llama3_vocabulary(size["vocab"]), size["vocab"])

    plan = [(name, name, small_type, 0) for name, small_type in top.items()]
    for layer in range(size["layers"]):
        of = small_layer(size, layer, by_layer)
        if "latents" in size and "query_latents" not in size:  # queries have a matrix of their own
            of = {part.replace("attn_q_b", "attn_q"): small_type for part, small_type in of.items() if "attn_q_a" not in part}
        plan += [(f"blk.{layer}.{part}", part, small_type, layer) for part, small_type in of.items()]
    blocks, found = Blocks(), []
    for name, part, small_type, layer in plan:
        dims = shape(part, size)
        held = kind(part, small_type, arguments.dtype, layer, size)
        if dims[-1] % 256:  # as llama.cpp does where rows are no whole blocks
            held = {Type.Q4_K: Type.Q5_0, Type.Q6_K: Type.Q8_0}.get(held, held)
        per_block, bytes_ = gguf.GGML_QUANT_SIZES[held]
        found.append((dims, held, part))
        writer.add_tensor_info(name, dims, np.dtype(np.float32), int(np.prod(dims)) // per_block * bytes_, raw_dtype=held)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for dims, held, part in found:
        per_block, bytes_ = gguf.GGML_QUANT_SIZES[held]
        if held == Type.F32:
            numbers = np.resize(blocks.block, int(np.prod(dims))) * np.float32(0.05 if len(dims) < 2 else dims[-1] ** -0.5)
            if len(dims) == 1 and ("norm" in part or "freqs" in part):
                numbers += 1
            data = (-np.abs(numbers) - 0.1 if part == "ssm_a" else numbers).astype(np.float32)
        else:
            whole = int(np.prod(dims)) // per_block * bytes_
            data = np.resize(np.frombuffer(blocks.rows(held, dims[-1]), np.uint8), whole)
        writer.write_tensor_data(data)
    writer.close()


if __name__ == "__main__":
    main()
