"""What the server says without any package: the answers that those of packages are compared with."""

import json
import sys
import urllib.request

from pydantic import BaseModel, ConfigDict, Field

url, key = sys.argv[2:4]
BASE = f"{url}/v1"
ASK = "Once upon a time"
TOKENS = 12


class Fox(BaseModel):
    """A fox."""

    model_config = ConfigDict(extra="forbid")  # or a model of random weights may add properties without an end
    age: int = Field(ge=0, le=9)


def post(path, **body):
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{BASE}/{path}", json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)


def text(*messages, **more):
    """The text that the model says at temperature 0 to messages, pairs of a role and a text."""
    messages = [{"role": role, "content": content} for role, content in messages or [("user", ASK)]]
    body = dict(model="demo", messages=messages, temperature=0, max_tokens=TOKENS) | more
    said = post("chat/completions", **body)["choices"][0]["message"]["content"]
    assert said, "the model says nothing that could be compared"
    return said


def vectors(*texts):
    return [one["embedding"] for one in post("embeddings", model="bert", input=list(texts))["data"]]


def near(some, others):
    """Vectors that are the same: packages take them as base64, which is exact in F32, or as decimals, which are too."""
    assert len(some) == len(others), (len(some), len(others))
    for one, other in zip(some, others):
        assert len(one) == len(other) and max(abs(a - b) for a, b in zip(one, other)) < 1e-7, (one, other)
