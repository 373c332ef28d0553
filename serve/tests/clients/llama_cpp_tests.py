"""Runs the server tests of llama.cpp against our server, with models of fixtures/ in place of those that they download.

    LLAMA_CPP_SOURCE=path/to/llama.cpp python serve/tests/clients/llama_cpp_tests.py [SERVE] [arguments of pytest]

Needs pytest, filelock, requests, openai and wget, and target/release/serve unless SERVE is another one. What an option of
llama-server sets for all requests (seed, temperature, limit of tokens, thought) is put into each request, and the name of the model becomes
ours. What only a certain model says is not judged: texts, numbers of tokens, and that it goes on for long, for which requests ignore
the end of ours. The table is docs/serve-llama-cpp.md.
"""

import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import openai._base_client
import pytest
import requests

HERE = Path(__file__).resolve()
FIXTURES = HERE.parents[3] / "fixtures"
TESTS = Path(os.environ["LLAMA_CPP_SOURCE"]).resolve() / "tools/server/tests"
SCRATCH = Path(tempfile.mkdtemp(prefix="llama-cpp-tests-"))

sys.path.insert(0, str(TESTS))
import utils  # noqa: E402  (theirs)

# The repositories of their presets, and what takes their place.
MODELS = {
    "ggml-org/test-model-stories260K": "demo",
    "ggml-org/test-model-stories260K-infill": "infill",
    "stories15M_MOE-F16.gguf": "demo",
    "ggml-org/tinygemma3-GGUF:Q8_0": "gemma",
    "bert-bge-small/ggml-model-f16.gguf": "bert",
    "jina-reranker-v1-tiny-en/ggml-model-f16.gguf": "rerank",
    "tinyllamas/split/stories15M-q8_0-00001-of-00003.gguf": "split",
}
# In the place of a picture of the Hub.
PICTURE = next((FIXTURES / "images").glob("*.png"))
# What llama-server has and we do not.
NOT_OURS = ["models_dir", "models_preset", "server_tools", "mcp_servers_config", "mcp_servers_json", "ui_mcp_proxy", "gcp_compat",
            "sleep_idle_seconds", "slot_save_path", "model_draft", "spec_type", "enable_ctx_shift", "media_path",
            "cache_ram", "backend_sampling", "cors_origins", "model_tags", "no_ui"]
# Words that only their models say.
THEIRS = ("Suddenly", "going|bed", "But she", "Sarax", "blue", "felter", "Whillicter", "princesses", "very|special",
          "small|house", "Dad", "climb", "friends", "cat|Whiskers", "(cat)", "(frog)", "wise|kind", "eye|love", "bright|day",
          "special|thing", "far|from", "Ann|small", "excited", "little|girl", "n_threads")
# Templates that llama-server knows by a name, in our own words.
NAMED = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
              "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "llama3": "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
              "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    "command-r": "{% for m in messages %}<|START_OF_TURN_TOKEN|><|{{ 'CHATBOT' if m.role == 'assistant' else m.role | upper }}_TOKEN|>"
                 "{{ m.content | trim }}<|END_OF_TURN_TOKEN|>{% endfor %}"
                 "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
}


class AnyCount(int):
    """A number of tokens of another tokenizer: any positive one will do."""

    def __eq__(self, other):
        return isinstance(other, int) and other > 0

    def __ne__(self, other):
        return not self == other

    __hash__ = int.__hash__


def changed(name, tokens, template=None):
    """A model of the fixtures with a longer context, which rotated positions allow, and maybe another chat template."""
    folder = Path(tempfile.mkdtemp(dir=SCRATCH)) / Path(name).name
    shutil.copytree(FIXTURES / name, folder)
    for file, key in [("config.json", "max_position_embeddings"), ("tokenizer_config.json", "model_max_length"),
                      ("sentence_bert_config.json", "max_seq_length")]:
        path = folder / file
        if path.exists():
            config = json.loads(path.read_text())
            config[key] = tokens
            if template is not None:
                config.pop("chat_template", None)
            path.write_text(json.dumps(config))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def infilling():
    """The demo whose last three tokens are those of fill in the middle."""
    folder = SCRATCH / "infill/demo"
    if not folder.exists():
        folder.parent.mkdir()
        changed("demo", 16384).rename(folder)
        path = folder / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        model = tokenizer["model"]
        gone = {token for token, place in model["vocab"].items() if place >= 509}
        model["vocab"] = {token: place for token, place in model["vocab"].items() if token not in gone}
        joined = [(merge, merge.replace(" ", "", 1) if isinstance(merge, str) else "".join(merge)) for merge in model["merges"]]
        model["merges"] = [merge for merge, makes in joined if makes not in gone]
        for place, name in enumerate(["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"], 509):
            tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": place, "content": name})
        path.write_text(json.dumps(tokenizer))
    return folder


def adapter():
    """An adapter of the demo, whose numbers are made here."""
    folder = SCRATCH / "adapter"
    if not folder.exists():
        folder.mkdir()
        config = json.loads((FIXTURES / "demo/config.json").read_text())
        inputs, outputs = config["num_attention_heads"] * config["head_dim"], config["hidden_size"]
        name = "base_model.model.model.layers.0.self_attn.o_proj.lora_"
        header = json.dumps({
            f"{name}A.weight": {"dtype": "F32", "shape": [1, inputs], "data_offsets": [0, 4 * inputs]},
            f"{name}B.weight": {"dtype": "F32", "shape": [outputs, 1], "data_offsets": [4 * inputs, 4 * (inputs + outputs)]},
        }).encode()
        numbers = struct.pack(f"<{inputs + outputs}f", *(math.sin(0.7 * place) for place in range(inputs + outputs)))
        (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + numbers)
        keys = {"peft_type": "LORA", "r": 1, "lora_alpha": 8, "target_modules": ["o_proj"]}
        (folder / "adapter_config.json").write_text(json.dumps(keys))
    return str(folder)


def model_of(server):
    """Our model for their server, and more options."""
    name = MODELS.get(server.model_hf_file or server.model_hf_repo)
    if name is None:
        pytest.skip(f"needs {server.model_hf_repo} {server.model_hf_file or ''}")
    if server.chat_template or server.chat_template_file:
        named = server.chat_template
        text = NAMED.get(named, named) if named else Path(server.chat_template_file).read_text()
        return changed("demo", 16384, text), []
    if name == "gemma":
        folder = SCRATCH / "gemma"
        if not folder.exists():
            tarfile.open(FIXTURES / "vision/gemma-3.tar.gz").extractall(folder, filter="data")
        return next(folder.glob("**/bf16")), ["--vision"]
    if name == "split":
        return next((FIXTURES / "models/llama-256/split").glob("*-00001-of-*.gguf")), []
    if name == "infill":
        return infilling(), []
    of = {"demo": ("demo", 16384), "bert": ("embeddings/embedding-gemma", 1024), "rerank": ("embeddings/modernbert", 1024)}
    if name not in made:
        made[name] = changed(*of[name])
    return made[name], []


def start(self, timeout_seconds=60):
    for name in NOT_OURS:
        if getattr(self, name) not in (None, False):
            pytest.skip(f"not ours: {name}")
    model, options = model_of(self)
    name = (self.model_alias or "model").split(",")[0]
    options += ["--name", name, "--port", str(self.server_port), "--sessions", str(self.n_slots or 4)]
    if not (self.server_embeddings or self.server_reranking):
        options += ["--context", str((self.n_ctx or 512) // (1 if self.kv_unified else self.n_slots or 1))]
    for path in self.lora_files or []:
        options += ["--lora", f"adapter={path}"]
    if self.api_key:
        key = SCRATCH / "key"
        key.write_text(self.api_key)
        options += ["--api-key-file", str(key)]
    self.process = subprocess.Popen([SERVE, str(model), *options])
    utils.server_instances.add(self)
    running.append((self, name))
    end = time.time() + timeout_seconds
    while time.time() < end:
        assert self.process.poll() is None, "our server ended"
        try:
            if requests.get(self.make_url("/health"), timeout=1).ok:
                return
        except requests.exceptions.ConnectionError:
            time.sleep(0.02)
    raise TimeoutError


running, made = [], {}
LIMITS = {"responses": "max_output_tokens", "messages": "max_tokens"}


def asked(path, body):
    """The body of a request as our server has to get it."""
    if not isinstance(body, dict) or not running:
        return body
    server, name = running[-1]
    body = dict(body)
    if isinstance(body.get("model"), str):
        body["model"] = name
    end = path.rstrip("/").split("/")[-1]
    if end == "apply-template" and server.reasoning:
        body["chat_template_kwargs"] = {"enable_thinking": server.reasoning != "off"}
    if end not in ("completion", "completions", "infill", "responses", "messages"):
        return body
    body.setdefault("temperature", server.temperature)
    if end != "messages":
        body.setdefault("seed", server.seed)
        body.setdefault("ignore_eos", True)
    limit = LIMITS.get(end, "n_predict")
    if server.n_predict and server.n_predict > 0 and not {"max_tokens", "n_predict", limit} & body.keys():
        body[limit] = server.n_predict
    return body


def hook_requests():
    send = requests.Session.request

    def request(self, method, url, **more):
        if urlsplit(url).netloc == "huggingface.co" and url.endswith(".png"):
            response = requests.Response()
            response.status_code, response._content = 200, PICTURE.read_bytes()
            return response
        if "json" in more:
            more["json"] = asked(urlsplit(url).path, more["json"])
        return send(self, method, url, **more)

    requests.Session.request = request
    build = openai._base_client.BaseClient._build_request

    def build_request(self, options, **more):
        options.json_data = asked(options.url, options.json_data)
        return build(self, options, **more)

    openai._base_client.BaseClient._build_request = build_request


def hook_utils():
    utils.ServerProcess.start = start
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    search = utils.match_regex
    utils.match_regex = lambda regex, text: isinstance(text, str) if any(word in regex for word in THEIRS) else search(regex, text)

    def download(url, output_file_path=None):
        return adapter() if "shakespeare" in url else pytest.skip(f"needs {url}")

    utils.download_file = download


class Plugin:
    """Parameters that only their models meet, and a table of the outcomes."""

    def __init__(self):
        self.rows = {}

    def pytest_collection_modifyitems(self, items):
        for item in items:
            params = getattr(item, "callspec", None) and item.callspec.params or {}
            for name in ("n_prompt", "n_tokens"):
                if isinstance(params.get(name), int):
                    params[name] = AnyCount(params[name])

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            why = ""
            if report.outcome == "failed":
                text = str(report.longrepr)
                why = next(iter(re.findall(r"^E +(.*)$", text, re.M)), text[-200:])
            elif report.outcome == "skipped":
                why = report.longrepr[2]
            self.rows.setdefault(report.nodeid, (report.outcome, why))

    def pytest_sessionfinish(self):
        with open(os.environ.get("OUTCOMES", os.devnull), "w") as file:
            for name, (outcome, why) in self.rows.items():
                print(outcome, name, why.replace("\n", " ")[:300], sep="\t", file=file)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    has_serve = arguments and os.access(arguments[0], os.X_OK) and Path(arguments[0]).is_file()
    SERVE = str(Path(arguments.pop(0) if has_serve else HERE.parents[3] / "target/release/serve").resolve())
    hook_requests()
    hook_utils()
    os.chdir(TESTS)
    code = pytest.main(["-p", "no:cacheprovider", "--tb=short", "-q", *arguments], plugins=[Plugin()])
    shutil.rmtree(SCRATCH)
    sys.exit(code)
