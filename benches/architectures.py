"""The architectures of llama.cpp: which are computed here, and how near to it, and which are refused, by which words.

    .../test-llama-archs -s 1 -o FOLDER          llama.cpp's test writes a small file with random weights of each
    cargo build --release --example logits
    LLAMA_CPP_SOURCE=.../llama.cpp python benches/architectures.py FOLDER [NAME ..] > benches/record/architectures.md

That test writes keys of all architectures into every file. A file keeps those that llama.cpp's converter may write for its
architecture, as the calls in `conversion/` say, unless their value is none, and the tensors that gguf-py lists for it without scales of
FP4 and random factors of frequencies; and it gets a vocabulary of its size. Both programs compute
the same file: the relative L2 distance of the logits of 48 random tokens is printed. llama.cpp rounds the cache, some
activations and GELU to F16, so 2e-2 is taken as the same function.
"""

import functools
import importlib
import inspect
import os
import pkgutil
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = os.environ["LLAMA_CPP_SOURCE"]
sys.path[:0] = [f"{SOURCE}/gguf-py", SOURCE]

import conversion  # noqa: E402
import gguf  # noqa: E402
import llama_cpp  # noqa: E402
import numpy as np  # noqa: E402
from conversion.base import ModelBase, TextModel  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

LOGITS = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).resolve().parents[1] / "target")) / "release/examples/logits"
SAME = 2e-2
# Tensors and keys that llama.cpp takes where they are there, and no converter writes.
UNWRITTEN = {"qwen2-dense": "output.bias", "qwen2vl-dense": "output.bias", "ernie4_5-moe-moe": "output.bias", "paddleocr-moe": "expert_",
             "hy_v3-moe": r"ffn_(gate|up|down)\.weight", "mpt-dense": ".*bias|position_embd.*|.*attn_[qk]_norm.*",
             "exaone4-dense": r"\.bias|sliding_window", "lfm2-dense": r"\.bias|sliding_window", "qwen3next-moe": r"blk\.0\.attn_(qkv|gate)"} | dict.fromkeys(
    ("deci-dense", "exaone-dense", "exaone-moe-moe", "falcon-h1-dense", "granitehybrid-dense", "jamba-dense", "lfm2moe-moe", "llama-moe", "maincoder-dense",
     "minimax-m2-moe", "mistral3-dense", "mistral3-moe", "nanbeige-dense", "orion-dense", "phi3-dense", "plamo-dense", "refact-dense", "spark2_5-dense", "xverse-dense"),
    r"_(q|k|v|output|gate|up|down)\.bias")
# What is computed as transformers does, unlike llama.cpp: the reason.
ON_PURPOSE = {
    "phimoe": "LayerNorm and the sparse mixer, as transformers",
}


def subclasses(one):
    for other in one.__subclasses__():
        yield other
        yield from subclasses(other)


def written() -> dict[str, set[str]]:
    """The keys that converters may write, by architecture, without its name."""
    for module in pkgutil.iter_modules(conversion.__path__):
        importlib.import_module(f"conversion.{module.name}")
    @functools.cache
    def of_method(name: str) -> set[str]:
        source, found = inspect.getsource(getattr(gguf.GGUFWriter, name, lambda: None)), set()
        for path in re.findall(r"Keys\.([A-Za-z0-9_.]+?)(?:\.format|[^A-Za-z0-9_.])", source):
            key = gguf.Keys
            for part in path.split("."):
                key = getattr(key, part, None)
            found |= {key.replace("{arch}.", "")} if isinstance(key, str) else set()
        return found
    source, keys = functools.cache(inspect.getsource), {}
    for one in set(subclasses(TextModel)):
        for base in one.__mro__ if getattr(one, "model_arch", None) is not None else ():
            if issubclass(base, ModelBase) and base is not ModelBase:
                for method in set(re.findall(r"gguf_writer\.(add_\w+)\(", source(base))):
                    keys.setdefault(gguf.MODEL_ARCH_NAMES[one.model_arch], set()).update(of_method(method))
    return keys


def as_converted(source: Path, target: Path, keys: set[str]) -> str:
    """A copy with these keys and a vocabulary of its size; returns the architecture."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    values = {name.removeprefix(f"{architecture}."): field for name, field in reader.fields.items() if name.startswith(f"{architecture}.")}
    writer = gguf.GGUFWriter(target, architecture)
    unwritten = UNWRITTEN.get(source.stem, "^$")
    unscaled = values["rope.scaling.factor"].contents() == 0.0
    for name, field in values.items():
        value = field.contents()
        none = name != "ssm.group_count" and value in (0, 0.0, "", 0xffffffff) or isinstance(value, list) and not any(value)
        if name not in keys or re.search(unwritten, name) or none and value is not False or unscaled and name.startswith("rope.scaling."):
            continue
        array = field.types[0] == gguf.GGUFValueType.ARRAY
        flags = name.endswith(("sliding_window_pattern", "recurrent_layers"))  # converters write truth values
        if name == "attention.head_count" and array:  # converters write one number
            value, array, field.types[0] = max(value), False, gguf.GGUFValueType.UINT32
        value = [bool(flag) for flag in value] if array and flags else value
        inner = (gguf.GGUFValueType.BOOL if flags else field.types[1]) if array else None
        writer.add_key_value(f"{architecture}.{name}", value, field.types[0], inner)
    if not any(values[f"attention.{kind}epsilon"].contents() for kind in ("layer_norm_", "layer_norm_rms_")):
        writer.add_layer_norm_rms_eps(1e-5)
    texts = ["<unk>", "<s>", "</s>", "<0x0A>"] + [f"w{index}" for index in range(4, values["vocab_size"].contents())]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts)
    writer.add_token_scores([-float(index) for index in range(len(texts))])
    writer.add_token_types([2, 3, 3, 6] + [1] * (len(texts) - 4))
    kinds = gguf.MODEL_TENSORS[next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)]
    kinds = [*kinds, gguf.MODEL_TENSOR.ATTN_Q, gguf.MODEL_TENSOR.ATTN_K, gguf.MODEL_TENSOR.ATTN_V, gguf.MODEL_TENSOR.FFN_GATE_UP_EXP]
    kinds = {re.sub(r"\{\w+\}", r"\\d+", gguf.TENSOR_NAMES[kind].replace(".", r"\.")) for kind in kinds}
    for tensor in reader.tensors:
        module, _, part = tensor.name.rpartition(".")
        if re.search(unwritten, tensor.name) or part in ("scale", "input_scale") or module.startswith("rope_f") or not any(re.fullmatch(kind, name) for kind in kinds for name in (module, tensor.name)):
            continue
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return architecture


def theirs(path: Path, tokens: list[int]) -> np.ndarray:
    model = llama_cpp.Llama(str(path), n_ctx=64, n_batch=64, n_threads=1, n_threads_batch=1, logits_all=True, flash_attn=False,
                            verbose=False)
    model.eval(tokens)
    rows = np.array(model.scores[:len(tokens)], dtype=np.float64)
    model.close()
    return rows


def judged(source: Path, keys: dict[str, set[str]]) -> tuple[str, str, str]:
    """The verdict, the relative distance, and the words of a refusal or the reason of a difference."""
    with tempfile.TemporaryDirectory() as temporary:
        path, out = Path(temporary) / source.name, Path(temporary) / "logits.safetensors"
        name = gguf.GGUFReader(source).fields["general.architecture"].contents()
        as_converted(source, path, keys.get(name, set()))
        tokens = random.Random(1).choices(range(128), k=48)
        command = [LOGITS, path, "--device", "cpu", "--tokens", ",".join(map(str, tokens)), "--out", out]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.replace(f"{path}: ", "").split("\n\n")[0].split("; supported:")[0].split("\ninput")[0]
            return "refused", "", " ".join(said.split())[:240]
        ours = load_file(out)["logits"].astype(np.float64)
        reference = theirs(path, tokens)
    distance = np.linalg.norm(ours - reference) / np.linalg.norm(reference)
    if distance <= SAME:
        return "computed", f"{distance:.1e}", ""
    return ("on purpose" if name in ON_PURPOSE else "DIFFERENT"), f"{distance:.1e}", ON_PURPOSE.get(name, "")


def main() -> None:
    folder, *names = sys.argv[1:]
    keys, rows = written(), []
    for source in sorted(Path(folder).glob("*.gguf")):
        if not names or source.stem in names:
            rows.append((source.stem, *judged(source, keys)))
            print(*rows[-1], file=sys.stderr, flush=True)
    counts = {verdict: sum(row[1] == verdict for row in rows) for verdict in sorted({row[1] for row in rows})}
    print("# The architectures of llama.cpp\n\nMade by `benches/architectures.py`:", ", ".join(f"{verdict} {count}" for verdict, count in counts.items()),
          f"of {len(rows)} files.\n\n| file | verdict | distance | why |\n|---|---|---|---|")
    for row in rows:
        print("|", " | ".join(cell.replace("|", "\\|") for cell in row), "|")


if __name__ == "__main__":
    main()
