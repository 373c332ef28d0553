"""What torch reaches with int8 or BF16 on this machine: the products of a model's linear layers, and nothing else.

    python benches/torch_int8.py --geometry tinyllama-1.1b -p 512 -r 5 --threads 2
    python benches/torch_int8.py --geometry tinyllama-1.1b -p 512 -r 5 --threads 2 --bf16

`torch._int_mm` (oneDNN) multiplies int8 activations with int8 weights into int32; `--bf16` multiplies BF16 with BF16. Quantising the activations, scales,
norms, attention and the head are left out, so the figures are above what a whole model in torch would give; there is no
kernel for one row, so torch's decode is no peer. One JSON object goes to standard output.
"""

import argparse
import json
import statistics
import time

import torch
from make_model import GEOMETRIES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--geometry", default="tinyllama-1.1b", choices=GEOMETRIES)
    parser.add_argument("-p", type=int, default=512, help="prompt tokens")
    parser.add_argument("-r", type=int, default=5, help="repetitions")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    sizes = GEOMETRIES[arguments.geometry]
    hidden, wide, layers = sizes["hidden_size"], sizes["intermediate_size"], sizes["num_hidden_layers"]
    q, kv = sizes["num_attention_heads"] * sizes["head_dim"], sizes["num_key_value_heads"] * sizes["head_dim"]
    shapes = [(q, hidden), (kv, hidden), (kv, hidden), (hidden, q), (wide, hidden), (wide, hidden), (hidden, wide)]
    def made(*shape: int) -> torch.Tensor:
        return torch.randn(shape).bfloat16() if arguments.bf16 else torch.randint(-128, 128, shape, dtype=torch.int8)

    weights = [made(*shape) for shape in shapes]
    inputs = {width: made(arguments.p, width) for _, width in shapes}
    multiply = torch.mm if arguments.bf16 else torch._int_mm

    def block() -> None:
        for weight in weights:
            multiply(inputs[weight.shape[1]], weight.t())

    block()
    speeds = []
    for _ in range(arguments.r):
        start = time.perf_counter()
        block()
        speeds.append(arguments.p / ((time.perf_counter() - start) * layers))
    operations = 2 * layers * sum(rows * columns for rows, columns in shapes)
    speed = statistics.median(speeds)
    print(json.dumps({"torch": torch.__version__, "threads": arguments.threads, "prompt_tokens": arguments.p,
                      "layers_tok_s": speed, "gop_s": speed * operations / 1e9}))


if __name__ == "__main__":
    main()
