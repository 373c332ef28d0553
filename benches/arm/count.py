"""Counts what a product executes, and by llvm-mca how many cycles that takes on a processor that is not there.

A product is followed instruction by instruction under QEMU, between two marks, for two numbers of rows; the difference is what
rows cost, without calls, the quantising of activations or anything else that happens once. What was executed goes to llvm-mca in
the order in which it was executed, so that loops, spills, calls and branches count as often as they come. llvm-mca knows ports,
latencies and the size of the window; not caches, memory, and what predictors miss.

    count.py count BINARY OUT.json --level dotprod         ours: the bench `product`, built for aarch64
    count.py count BINARY OUT.json --level dotprod --llama  llama.c, linked with ggml for that level
    count.py table --ours OUT.json .. --llama OUT.json ..

QEMU_LD_PREFIX as QEMU wants it; LLVM_SUFFIX=-22 where the tools are called so.
"""

import argparse
import bisect
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

INPUTS = 2048
# Tiles of floats have three rows, panels eight.
ROWS = {"BF16": (24, 48), "F16": (24, 48), "F32": (24, 48)}
FEW_ROWS = (8, 16)
# A prompt, and the two shorter ones from which it is known what a token costs and what all of them share: whole tiles of 4 and of 6
# tokens, and more of them than floats have in one pass over the rows.
PROMPT = 512
SHORT = (24, 48)
CPUS = ["neoverse-n1", "neoverse-v1", "neoverse-v2", "apple-m1"]
ATTRIBUTES = "+v8.6a,+fp16fml,+i8mm,+bf16,+rcpc-immo,+lse"
# Ours -> llama.cpp's. It has no int8 with a scale a row: beside it stand its blocks of 8 bits.
DTYPES = {"Q4_0": "q4_0", "Q8_0": "q8_0", "Q4_K": "q4_K", "Q5_K": "q5_K", "Q6_K": "q6_K", "BF16": "bf16", "F16": "f16", "I8": "q8_0"}
# What ggml does once, millions of instructions of it: not followed.
ONCE = re.compile(r"main$|ggml_cpu_init|_*(expf|expm1f|tanhf|__ieee754_expf)$|.*memset|_Z\w*repack_q|_Z\w*quantize_mat|quantize_row|ggml_quantize|ggml_init")
LLVM = os.environ.get("LLVM_SUFFIX", "")


def run(*args, **options):
    done = subprocess.run(args, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, args))[:200]}: {done.stderr[-800:]}")
    return done.stdout


class Program:
    """A binary, its instructions by address, and the addresses of its marks."""

    def __init__(self, path):
        self.path = path
        self.texts = {}
        for line in run("llvm-objdump" + LLVM, "-d", "--no-show-raw-insn", "--mattr=+all", path).splitlines():
            found = re.match(r"\s*([0-9a-f]+):\s+(.*)", line)
            if found:
                self.texts[int(found[1], 16)] = found[2]
        symbols = [line.split() for line in run("nm", path).splitlines()]
        self.functions = sorted((int(s[0], 16), s[2]) for s in symbols if len(s) == 3 and s[1] in "tTwW")
        self.marks = [self.mark("begin"), self.mark("end")]
        self.traces = {}
        self.filter = []
        if any(symbol == "ggml_cpu_init" for _, symbol in self.functions):
            ranges = []
            for (at, symbol), (end, _) in zip(self.functions, self.functions[1:]):
                if end == at or ONCE.match(symbol):
                    continue
                if ranges and ranges[-1][1] == at:
                    ranges[-1][1] = end
                else:
                    ranges.append([at, end])
            self.filter = ["-dfilter", ",".join(f"{at:#x}..{end - 1:#x}" for at, end in ranges)]

    def mark(self, name):
        pattern = rf"^(_ZN\d+product\d+{name}17h\w+E|_RN\w*\d+product\d+{name}|{name})$"
        return next(at for at, symbol in self.functions if re.match(pattern, symbol))

    def function(self, at):
        return self.functions[bisect.bisect_right(self.functions, (at, "~")) - 1][1]

    def trace(self, qemu, *args):
        """The addresses of the instructions between the marks, and the program's second word."""
        if (known := self.traces.get(args)) is not None:
            return known
        with tempfile.NamedTemporaryFile("r", suffix=".trace") as log:
            out = run(*qemu, "-singlestep", "-d", "exec,nochain", *self.filter, "-D", log.name, self.path, *map(str, args))
            begin, word = out.split()[:2]
            base = int(begin, 16) - self.marks[0]
            first, last = (f"/{mark + base:016x}/" for mark in self.marks)
            pcs, inside = [], False
            for line in log:
                if not inside:
                    inside = first in line
                elif last in line:
                    break
                elif line.startswith("Trace"):
                    pcs.append(int(line.split("/")[1], 16) - base)
        self.traces[args] = pcs, word
        return pcs, word


def assembly(texts):
    """What llvm-mca takes: targets of branches are of no account to it."""
    lines = []
    for text in texts:
        text = re.sub(r"\s*(<.*|//.*|;.*)$", "", text)
        text = re.sub(r"^((?:b|bl|b\.\w+|cbn?z|tbn?z|adrp?|jmp|j\w+|call\w*)\s(?:.*,\s*)?)#?-?0x[0-9a-f]+$", r"\g<1>target", text)
        lines.append(text)
    return "target:\n" + "\n".join(lines) + "\n"


def cycles(texts, cpu, triple):
    if not texts:
        return 0
    with tempfile.NamedTemporaryFile("w", suffix=".s") as source:
        source.write(assembly(texts))
        source.flush()
        options = ["-mattr=" + ATTRIBUTES] if triple == "aarch64" else []
        out = run("llvm-mca" + LLVM, f"-mtriple={triple}", f"-mcpu={cpu}", *options, "-iterations=1", "-call-latency=1",
                  "-skip-unsupported-instructions=lack-sched",
                  "-instruction-info=0", "-resource-pressure=0", source.name)
    return int(re.search(r"Total Cycles:\s+(\d+)", out)[1])


def measure(program, qemu, args, rows, tokens, inputs, cpus, triple="aarch64"):
    """Instructions, those of them in a library, and cycles, of what the second number of rows has more than the first."""
    traces = [program.trace(qemu, *args, tokens, some, inputs) for some in rows]
    # What both begin with is nothing that rows cost.
    same = next((i for i, (a, b) in enumerate(zip(*(pcs for pcs, _ in traces))) if a != b), 0)
    totals = []
    for pcs, _ in traces:
        texts = [program.texts.get(pc) for pc in pcs[same:]]
        known = [text for text in texts if text]
        with ThreadPoolExecutor(2) as pool:
            totals.append([len(texts), len(texts) - len(known), *pool.map(lambda cpu: cycles(known, cpu, triple), cpus)])
    return traces[0][1], [more - less for less, more in zip(*totals)]


def per_weight(program, qemu, args, dtype, tokens, inputs, cpus, triple):
    """The same for a weight and a token."""
    rows = ROWS.get(dtype, ROWS["F16"] if tokens == 1 else FEW_ROWS)
    products = (rows[1] - rows[0]) * inputs
    if tokens == 1:
        kind, found = measure(program, qemu, args, rows, 1, inputs, cpus, triple)
    else:
        (kind, less), (_, more) = (measure(program, qemu, args, rows, some, inputs, cpus, triple) for some in SHORT)
        each = [(b - a) / (SHORT[1] - SHORT[0]) for a, b in zip(less, more)]
        once = [a - SHORT[0] * token for a, token in zip(less, each)]
        found = [token + all_of_them / tokens for token, all_of_them in zip(each, once)]
    instructions, elsewhere, *rest = (number / products for number in found)
    return {"kind": kind, "instructions": instructions, "elsewhere": elsewhere, "cycles": dict(zip(cpus, rest))}


def count(options):
    """Writes what is counted of one program, a dtype after the other."""
    program, rows = Program(options.binary), []
    for tokens in map(int, options.tokens.split(",")):
        for dtype in options.dtypes.split(","):
            args = (DTYPES[dtype],) if options.llama else (dtype, options.level)
            of = (dtype, tokens, options.inputs, options.cpus.split(","), options.triple)
            found = per_weight(program, options.emulator.split(), args, *of)
            rows.append({"level": options.level, "tokens": tokens, "dtype": dtype, **found})
            print(rows[-1], flush=True)
            with open(options.out, "w") as out:
                json.dump(rows, out, indent=1)


def table(options):
    """Ours next to llama.cpp's, for 100 weights and a token, and what ours need of its cycles."""

    def read(path):
        with open(path) as file:
            return {(row["level"], row["tokens"], row["dtype"]): row for row in json.load(file)}

    ours, theirs = ({}, {})
    for path in options.ours:
        ours |= read(path)
    for path in options.llama:
        theirs |= read(path)
    for level, tokens in dict.fromkeys(key[:2] for key in ours):
        print(f"\n`{level}`, {'one token' if tokens == 1 else f'{tokens} tokens'}:\n")
        print("| dtype | instructions |", " | ".join(CPUS), "|")
        print("|---|---|" + "---|" * len(CPUS))
        for (a, b, dtype), row in ours.items():
            other = theirs.get((a, b, dtype))
            if (a, b) != (level, tokens) or not other:
                continue
            cells = [f"{100 * row['instructions']:.1f} / {100 * other['instructions']:.1f}"]
            for cpu in CPUS:
                mine, its = 100 * row["cycles"][cpu], 100 * other["cycles"][cpu]
                cells.append(f"{mine:.2f} / {its:.2f} ({its / mine:.2f})")
            print(f"| {dtype} |", " | ".join(cells), "|")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("count", help="count one program")
    one.add_argument("binary")
    one.add_argument("out")
    one.add_argument("--level", required=True)
    one.add_argument("--llama", action="store_true", help="the binary is llama.c's")
    one.add_argument("--dtypes", default=",".join(DTYPES))
    one.add_argument("--tokens", default=f"1,{PROMPT}")
    one.add_argument("--inputs", type=int, default=INPUTS)
    one.add_argument("--cpus", default=",".join(CPUS))
    one.add_argument("--emulator", default="qemu-aarch64 -cpu max,sve=off")
    one.add_argument("--triple", default="aarch64")
    one.set_defaults(run=count)
    beside = commands.add_parser("table", help="print what was counted")
    beside.add_argument("--ours", nargs="+", required=True)
    beside.add_argument("--llama", nargs="+", required=True)
    beside.set_defaults(run=table)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    sys.exit(main())
