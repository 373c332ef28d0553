"""The speed of llama.cpp on a GGUF file, measured as `examples/bench` measures this library.

    python benches/peers.py MODEL.gguf -p 256 -n 64 -r 5

Prefill is a prompt of made-up ids, decode is greedy steps, both after `--depth` tokens. A repetition does
one of each, after a short run that touches every page. Everything else is llama.cpp's own default: it maps the file,
may repack block types for this CPU as it loads, and keeps an F16 cache. A table goes to standard error, one JSON
object with the names of `bench --json` to standard output. Its threads spin while they wait for each other, so a busy
machine slows decode manifold: `load_average_before` should be near 0. Needs what fixtures/requirements.txt lists.
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path

import llama_cpp
import numpy as np


@llama_cpp.llama_log_callback
def quiet(level, text, data):
    """Drops llama.cpp's log."""


CACHES = {"f16": llama_cpp.GGML_TYPE_F16, "q8_0": llama_cpp.GGML_TYPE_Q8_0, "f32": llama_cpp.GGML_TYPE_F32}


class LlamaCpp:
    """A model and one context of llama.cpp, without the Python layers that would be measured along with it."""

    def __init__(self, path: Path, context: int, threads: int, repack: bool, cache: str):
        start = time.perf_counter()
        model_settings = llama_cpp.llama_model_default_params()
        model_settings.use_extra_bufts = repack
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_settings)
        if not self.model:
            sys.exit(f"{path}: llama.cpp cannot load this file")
        self.load_time = time.perf_counter() - start
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = context
        settings.n_threads = settings.n_threads_batch = threads
        settings.type_k = settings.type_v = CACHES[cache]
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        if not self.context:
            sys.exit(f"{path}: llama.cpp cannot make a context of {context} tokens")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def forward(self, ids: list[int]) -> np.ndarray:
        """The logits after the last of `ids`, which follow what the cache holds."""
        tokens = (llama_cpp.llama_token * len(ids))(*ids)
        code = llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(tokens, len(ids)))
        assert code == 0, f"llama_decode gave {code}"
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, -1), shape=(self.vocab,))

    def cut(self, tokens: int) -> None:
        """Leaves the first `tokens` in the cache, which are computed if they are not there."""
        memory = llama_cpp.llama_get_memory(self.context)
        if llama_cpp.llama_memory_seq_pos_max(memory, 0) + 1 < tokens:
            llama_cpp.llama_memory_clear(memory, False)
            self.forward(self.made_up(tokens))
        llama_cpp.llama_memory_seq_rm(memory, 0, tokens, -1)

    def made_up(self, tokens: int) -> list[int]:
        """Ids of a prompt."""
        return [(index * 7919 + 13) % self.vocab for index in range(tokens)]

    def prefill(self, tokens: int, depth: int) -> float:
        """Tokens a second of a prompt after `depth` tokens."""
        self.cut(depth)
        start = time.perf_counter()
        self.forward(self.made_up(tokens))
        return tokens / (time.perf_counter() - start)

    def decode(self, tokens: int, depth: int, together: int) -> float:
        """Tokens a second after `depth` tokens, `together` in each step; by itself greedy, else made up."""
        self.cut(depth)
        following = 1
        start = time.perf_counter()
        for step in range(tokens // together):
            ids = [following] + [(step * together + i) * 31 % self.vocab for i in range(1, together)]
            following = int(self.forward(ids).argmax())
        return tokens // together * together / (time.perf_counter() - start)


def spread(figures: list[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(figures), "min": min(figures), "max": max(figures)}


def count(text: str) -> int:
    """A whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("-p", type=count, default=256, help="prompt tokens")
    parser.add_argument("-n", type=count, default=64, help="generated tokens")
    parser.add_argument("-r", type=count, default=5, help="repetitions")
    parser.add_argument("--threads", type=count, default=2)
    parser.add_argument("--depth", type=int, default=0, help="tokens in the cache before the prompt, and before the first that is generated")
    parser.add_argument("--together", type=count, default=1, help="tokens of each step of generation")
    parser.add_argument("--kv-cache", choices=CACHES, default="f16")
    parser.add_argument("--no-repack", action="store_true",
                        help="leave block types as they are: 0.3.36 ends by an illegal instruction on processors with AMX else")
    arguments = parser.parse_args()

    others = os.getloadavg()[0]
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    context = max(arguments.depth + max(arguments.p, arguments.n), 8)
    peer = LlamaCpp(arguments.model, context, arguments.threads, not arguments.no_repack, arguments.kv_cache)
    peer.prefill(8, 0)
    prefills, decodes = [], []
    for _ in range(arguments.r):
        prefills.append(peer.prefill(arguments.p, arguments.depth))
        decodes.append(peer.decode(arguments.n, arguments.depth, arguments.together))
    prefill, decode = spread(prefills), spread(decodes)

    name = f"llama.cpp (llama-cpp-python {version('llama_cpp_python')})"
    print(f"test             median     min     max  tokens/s, {arguments.threads} threads, {arguments.r} repetitions, "
          f"{name}", file=sys.stderr)
    for test, tokens, row in (("prefill", arguments.p, prefill), ("decode", arguments.n, decode)):
        print(f"{test:<7} {tokens:>6} {row['median']:>8.1f} {row['min']:>7.1f} {row['max']:>7.1f}", file=sys.stderr)
    print(json.dumps({
        "peer": name, "system": llama_cpp.llama_print_system_info().decode().strip(" |"),
        "model": str(arguments.model), "threads": arguments.threads, "load_s": peer.load_time,
        "load_average_before": others, "prefill": {"tokens": arguments.p, "depth": arguments.depth, "tok_s": prefill},
        "decode": {"tokens": arguments.n, "depth": arguments.depth, "tok_s": decode}}))


if __name__ == "__main__":
    main()
