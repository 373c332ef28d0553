"""Requests a second of what lm-evaluation-harness asks of a server, by servers in turns: medians of rounds.

    python benches/harness.py ours='target/release/serve MODEL.gguf --port {port}' \\
        theirs='llama-server -m MODEL.gguf --no-repack --port {port}' -r 5

Each argument is a name and the command that serves at `{port}`; all of them run, and one at a time is asked. `choice`
is multiple choice: four endings of each question after the same examples, with `echo` and `logprobs`, as
`local-completions` sends them. A server that refuses `echo` is asked for a token's `logprobs` after the same prompts in its
place, so it computes only the logits of the last position. `text` is 16 tokens after short prompts that differ. Every
round has prompts of its own, so none is known from before. A table goes to standard error, one JSON object with all
rounds to standard output.
"""

import argparse
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

WHO = ["a fox", "a cat", "a dog", "a boy", "a girl", "a bear", "a man", "a bird"]
LOADED = 600  # seconds in which a server has to load its model
DID = ["went to the park.", "saw a red ball.", "was very happy.", "wanted to play."]


def post(url: str, body: dict) -> dict:
    """The answer of a server's completions."""
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def start(command: str) -> tuple[subprocess.Popen, str]:
    """A server that has loaded its model, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(shlex.split(command.format(port=port)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    refused = None
    for _ in range(5 * LOADED):
        if server.poll() is not None:
            sys.exit(f"{command}: ended with {server.returncode}")
        try:
            post(url, {"prompt": "Once", "max_tokens": 1})
            return server, url
        except (urllib.error.URLError, ConnectionError) as error:
            refused = error
            time.sleep(0.2)
    server.kill()
    sys.exit(f"{command}: no answer in {LOADED} s: {refused}")


def choice(seed: int, questions: int, echo: bool) -> list[dict]:
    """The requests of multiple choice."""
    shots = f"Story {seed}. " + " ".join(f"There was {who} who {did}" for who in WHO for did in DID[:2])
    prompts = [f"{shots} Then {index} came, {WHO[index % len(WHO)]} who {did}" for index in range(questions) for did in DID]
    more = {"echo": True} if echo else {}
    return [{"prompt": prompt, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1} | more for prompt in prompts]


def text(seed: int, questions: int) -> list[dict]:
    """The requests of generated texts."""
    prompts = [f"Story {seed} of {index}: once upon a time there was {WHO[index % len(WHO)]} who" for index in range(questions)]
    return [{"prompt": prompt, "temperature": 0, "max_tokens": 16, "seed": 1} for prompt in prompts]


def speed(url: str, requests: list[dict], clients: int) -> float:
    """Requests a second, by so many clients at once."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(lambda body: post(url, body), requests))
    return len(requests) / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+", metavar="NAME=COMMAND")
    parser.add_argument("-q", type=int, default=4, help="questions of a round, each of four choices, and as many texts")
    parser.add_argument("-r", type=int, default=5, help="rounds")
    parser.add_argument("-c", type=int, default=4, help="requests at once")
    arguments = parser.parse_args()

    load = os.getloadavg()[0]
    running: dict[str, tuple[subprocess.Popen, str]] = {}
    rounds: dict[str, dict[str, list[float]]] = {}
    echoes: dict[str, bool] = {}
    try:
        for server in arguments.servers:
            name, _, command = server.partition("=")
            running[name] = start(command)
            rounds[name] = {"choice": [], "text": []}
            try:
                post(running[name][1], choice(0, 1, True)[0])
                echoes[name] = True
            except urllib.error.HTTPError:
                echoes[name] = False
        for seed in range(1, arguments.r + 1):
            for name, (_, url) in running.items():
                rounds[name]["choice"].append(speed(url, choice(seed, arguments.q, echoes[name]), arguments.c))
                rounds[name]["text"].append(speed(url, text(seed, arguments.q), arguments.c))
    finally:
        for server, _ in running.values():
            server.kill()

    print(f"{'server':<12} {'echo':>5} {'choice/s':>9} {'text/s':>8}", file=sys.stderr)
    for name, tests in rounds.items():
        choices, texts = (statistics.median(tests[test]) for test in ("choice", "text"))
        print(f"{name:<12} {'yes' if echoes[name] else 'no':>5} {choices:>9.2f} {texts:>8.2f}", file=sys.stderr)
    print(json.dumps({"clients": arguments.c, "questions": arguments.q, "load_average_before": load,
                      "servers": {name: {"echo": echoes[name], "rounds": tests} for name, tests in rounds.items()}}, indent=1))


if __name__ == "__main__":
    main()
