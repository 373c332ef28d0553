"""This library and llama.cpp in turns: medians, ratios, and the shares of what the machine can do at most.

    cargo build --release --examples
    python benches/paired.py models/tinyllama-w8a8:models/tinyllama-q8_0.gguf models/tinyllama-q4_k_m.gguf -p 512 -n 64 -r 5

Each argument is a model, and after a colon the GGUF file that llama.cpp is given instead of the same. A round runs
`examples/bench` and `benches/peers.py` once each, as processes of their own. The processors of a virtual machine may move:
`bench` tells before and after each process how far apart the threads are, and a round in which that changed is run again,
so that both met the machine in the same state. Every figure is the median of `-r` rounds, every ratio the median of the
rounds' ratios; `rounds` has them all. With `--sessions N` a round also generates N sequences together, and `batch` has
what that gains over one. A table goes to standard error, one JSON object with the figures and the machine to standard
output: `benches/record/` keeps them.

To measure only by AVX2, give `--isa avx2`, and in `PYTHONPATH` a folder with a llama-cpp-python that was built so
(`CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON"`); `peer_system` tells what it uses.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def run(command: list[str]) -> dict:
    """The JSON object that a program prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}:\n{done.stderr}")
    return json.loads(done.stdout)


def speeds(report: dict) -> dict[str, float]:
    """Median tokens a second of one process."""
    return {test: report[test]["tok_s"]["median"] for test in ("prefill", "decode")}


def distance(arguments: argparse.Namespace) -> float:
    """Nanoseconds for a cache line from one thread to another, with the bundled model and nothing to compute."""
    nothing = ["-p", "0", "-n", "0", "-r", "1", "--threads", str(arguments.threads), "--json"]
    return run([str(arguments.bench), *nothing])["thread_distance_ns"] or 0.0


def round_of(model: str, peer: str, arguments: argparse.Namespace) -> tuple[dict, dict] | None:
    """What both report, if the threads were as far apart all the time."""
    common = ["-p", str(arguments.p), "-n", str(arguments.n), "--threads", str(arguments.threads)]
    isa = ["--isa", arguments.isa] if arguments.isa else []
    bench = [str(arguments.bench), model, "-r", "1", "--json", *isa]
    distances = [distance(arguments)]
    ours = run([*bench, *common])
    distances += [ours["thread_distance_ns"] or 0.0, distance(arguments)]
    theirs = run([sys.executable, str(HERE / "peers.py"), peer, *common, "-r", "1"])
    distances.append(distance(arguments))
    if arguments.sessions:
        ours["batch"] = run([*bench, "-p", "0", *common[2:], "--sessions", str(arguments.sessions)])
        distances.append(distance(arguments))
    return (ours, theirs) if max(distances) <= 2 * min(distances) else None


def compare(model: str, peer: str, arguments: argparse.Namespace) -> dict:
    """The rounds of one model."""
    rounds, tries = [], 0
    while len(rounds) < arguments.r:
        if tries == 5 * arguments.r:
            sys.exit(f"{model}: the threads' distance changed in {tries - len(rounds)} of {tries} rounds")
        tries += 1
        rounds += filter(None, [round_of(model, peer, arguments)])

    def median(pick) -> float:
        return statistics.median(pick(ours, theirs) for ours, theirs in rounds)

    row = {"model": Path(model).name, "peer": Path(peer).name}
    for test in ("prefill", "decode"):
        row[test] = {
            "tok_s": median(lambda ours, _, test=test: speeds(ours)[test]),
            "peer_tok_s": median(lambda _, theirs, test=test: speeds(theirs)[test]),
            "ratio": median(lambda ours, theirs, test=test: speeds(ours)[test] / speeds(theirs)[test]),
        }
    if arguments.sessions:
        row["batch"] = {
            "sessions": arguments.sessions,
            "tok_s": median(lambda ours, _: speeds(ours["batch"])["decode"]),
            "ratio": median(lambda ours, _: speeds(ours["batch"])["decode"] / speeds(ours)["decode"]),
        }
    row["rounds"] = [
        {
            "prefill_tok_s": speeds(ours)["prefill"],
            "peer_prefill_tok_s": speeds(theirs)["prefill"],
            "decode_tok_s": speeds(ours)["decode"],
            "peer_decode_tok_s": speeds(theirs)["decode"],
            **{figure: ours[figure] for figure in ("bandwidth_gb_s", "bandwidth_share", "thread_distance_ns")},
            **({"batch_tok_s": speeds(ours["batch"])["decode"]} if arguments.sessions else {}),
        }
        for ours, theirs in rounds
    ]
    row["peer_system"] = rounds[0][1]["system"]
    row["bandwidth_gb_s"] = median(lambda ours, _: ours["bandwidth_gb_s"])
    row["bandwidth_share"] = median(lambda ours, _: ours["bandwidth_share"])
    row["arithmetic_gop_s"] = median(lambda ours, _: ours["arithmetic_gop_s"] or 0.0)
    row["block_arithmetic_gop_s"] = rounds[0][0]["block_arithmetic_gop_s"]
    row["arithmetic_share"] = median(lambda ours, _: ours["arithmetic_share"] or 0.0)
    for figure in ("weight_bytes_per_token", "operations_per_token"):
        row[figure] = rounds[0][0][figure]
    row["load_s"] = median(lambda ours, _: ours["load_s"])
    row["peak_rss_bytes"], row["planned_bytes"] = rounds[-1][0]["peak_rss_bytes"], rounds[-1][0]["planned_bytes"]
    return row


def processor() -> str:
    """The processor's name, family and model: a virtual machine may hide the name, and its generations differ."""
    facts = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    if "model name" not in facts:
        return platform.processor()
    return f"{facts['model name']} (family {facts.get('cpu family')}, model {facts.get('model')})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL[:PEER.gguf]")
    parser.add_argument("-p", type=int, default=512, help="prompt tokens")
    parser.add_argument("-n", type=int, default=64, help="generated tokens")
    parser.add_argument("-r", type=int, default=7, help="rounds")
    parser.add_argument("--sessions", type=int, default=0, help="sequences that are generated together")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", help="instruction sets of this library at most")
    parser.add_argument("--bench", type=Path, default=HERE.parent / "target/release/examples/bench")
    arguments = parser.parse_args()

    load = os.getloadavg()[0]
    rows = []
    print(f"{'model':<24} {'prefill':>8} {'peer':>7} {'ratio':>6} {'of peak':>8} {'decode':>8} {'peer':>7} {'ratio':>6} "
          f"{'of read':>8} {'batch':>6}", file=sys.stderr)
    for pair in arguments.models:
        model, _, peer = pair.partition(":")
        row = compare(model, peer or model, arguments)
        rows.append(row)
        prefill, decode = row["prefill"], row["decode"]
        print(f"{row['model']:<24} {prefill['tok_s']:>8.1f} {prefill['peer_tok_s']:>7.1f} {prefill['ratio']:>6.2f} "
              f"{row['arithmetic_share']:>7.0%} {decode['tok_s']:>9.1f} {decode['peer_tok_s']:>7.1f} "
              f"{decode['ratio']:>6.2f} {row['bandwidth_share']:>7.0%} {row.get('batch', {}).get('ratio', 0.0):>7.2f}",
              file=sys.stderr)
    print(json.dumps({
        "processor": processor(), "threads": arguments.threads, "isa": arguments.isa, "load_average_before": load,
        "prompt_tokens": arguments.p, "generated_tokens": arguments.n, "rounds": arguments.r, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
