"""More packages of Python, most of which are there for schemas and prompts, each as its own documentation begins:

    python outputs_client.py PACKAGE URL KEY

The server is that of frameworks_client.py. Ends with an error where one answer is wrong.
"""

import asyncio
import importlib.metadata
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # prices, which it asks the network for

from raw import ASK, BASE, Fox, TOKENS, key, near, text, url, vectors  # noqa: E402

package = sys.argv[1]
CATS = ["The cat sat on the mat.", "Cats run."]
MESSAGES = [{"role": "user", "content": ASK}]
TOOL = {"type": "function", "function": {"name": "remember", "description": "Remembers a fox.", "parameters": Fox.model_json_schema()}}
CHOSEN = {"type": "function", "function": {"name": "remember"}}


def right(fox):
    assert isinstance(fox, Fox) and 0 <= fox.age <= 9, fox


def instructor():
    import instructor
    from openai import OpenAI

    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS_STRICT):
        client = instructor.from_openai(OpenAI(base_url=BASE, api_key=key, max_retries=0), mode=mode)
        ask = dict(model="demo", messages=MESSAGES, temperature=0, max_tokens=300, max_retries=0)
        if mode != instructor.Mode.JSON:  # which only asks for any object
            right(client.chat.completions.create(**ask, response_model=Fox))
            parts = list(client.chat.completions.create_partial(**ask, response_model=Fox))
            assert 0 <= parts[-1].age <= 9, parts
    client = instructor.from_provider("openai/demo", base_url=BASE, api_key=key)
    right(client.create(messages=MESSAGES, response_model=Fox, max_tokens=300))


def litellm():
    import litellm

    said = text()
    for model, base in [("openai/demo", BASE), ("anthropic/demo", url), ("hosted_vllm/demo", BASE), ("lm_studio/demo", BASE)]:
        ask = dict(model=model, api_base=base, api_key=key, messages=MESSAGES, temperature=0, max_tokens=TOKENS, num_retries=0)
        whole = litellm.completion(**ask)
        assert whole.choices[0].message.content == said and whole.usage.completion_tokens == TOKENS, whole
        parts = litellm.completion(**ask, stream=True)
        assert "".join(part.choices[0].delta.content or "" for part in parts) == said, model
        longer = ask | dict(max_tokens=300)
        right(Fox.model_validate_json(litellm.completion(**longer, response_format=Fox).choices[0].message.content))
        message = litellm.completion(**longer, tools=[TOOL], tool_choice=CHOSEN).choices[0].message
        call, = message.tool_calls
        right(Fox.model_validate_json(call.function.arguments))
        turns = [*MESSAGES, message, {"role": "tool", "tool_call_id": call.id, "content": "ok"}]
        assert litellm.completion(**ask | dict(messages=turns), tools=[TOOL]).choices[0].message.content
    embedded = litellm.embedding(model="openai/bert", api_base=BASE, api_key=key, input=CATS, encoding_format="float")
    near([one["embedding"] for one in embedded.data], vectors(*CATS))
    answer = litellm.responses(model="openai/demo", api_base=BASE, api_key=key, input=ASK, temperature=0, max_output_tokens=TOKENS)
    assert answer.output[0].content[0].text.startswith(said), answer  # it asks for 16 tokens at least


def mistralai():
    from mistralai.client import Mistral

    with Mistral(api_key=key, server_url=url) as client:
        ask = dict(model="demo", messages=MESSAGES, temperature=0, max_tokens=TOKENS)
        whole = client.chat.complete(**ask)
        assert whole.choices[0].message.content == text(), whole
        parts = client.chat.stream(**ask)
        assert "".join(part.data.choices[0].delta.content or "" for part in parts) == text()
        longer = ask | dict(max_tokens=300)
        right(client.chat.parse(**longer, response_format=Fox).choices[0].message.parsed)
        message = client.chat.complete(**longer, tools=[TOOL], tool_choice=CHOSEN).choices[0].message
        right(Fox.model_validate_json(message.tool_calls[0].function.arguments))
        results = [{"role": "tool", "tool_call_id": call.id, "name": "remember", "content": "ok"} for call in message.tool_calls]
        assert client.chat.complete(**ask | dict(messages=[*MESSAGES, message, *results]), tools=[TOOL]).choices[0].message.content
        # Its embeddings and its list of models have a form of their own, not OpenAI's.


def outlines():
    import re
    from typing import Literal

    import openai
    import outlines

    client = openai.OpenAI(base_url=BASE, api_key=key, max_retries=0)
    for model in (outlines.from_openai(client, "demo"), outlines.from_vllm(client, "demo"), outlines.from_sglang(client, "demo")):
        assert model(ASK, temperature=0, max_tokens=TOKENS) == text()
        assert "".join(model.stream(ASK, temperature=0, max_tokens=TOKENS)) == text()
        right(Fox.model_validate_json(model(ASK, Fox, max_tokens=300)))
        if type(model).__name__ != "OpenAI":
            assert re.fullmatch("[a-c]{3}", model(ASK, outlines.regex("[a-c]{3}"), max_tokens=20))
            assert model(ASK, Literal["red", "grey"], max_tokens=20) in ("red", "grey")


def guidance():
    import guidance

    model = guidance.models.OpenAI("demo", base_url=BASE, api_key=key, echo=False)
    with guidance.user():
        model += ASK
    with guidance.assistant():
        plain = model + guidance.gen("said", max_tokens=TOKENS, temperature=0)
        held = model + guidance.json("fox", schema=Fox, max_tokens=300)
    assert plain["said"] == text(), plain["said"]
    right(Fox.model_validate_json(held["fox"]))


def dspy():
    import dspy

    # Its own programs ask in words for a form that this model cannot keep.
    model = dspy.LM("openai/demo", api_base=BASE, api_key=key, temperature=0, max_tokens=TOKENS, cache=False, num_retries=0)
    assert model(ASK) == model(messages=MESSAGES) == [text()]
    embed = dspy.Embedder("openai/bert", api_base=BASE, api_key=key, caching=False)
    near(embed(CATS).tolist(), vectors(*CATS))


PACKAGES = dict(instructor=instructor, litellm=litellm, mistralai=mistralai, outlines=outlines, guidance=guidance, dspy=dspy)
PACKAGES[package]()
print(f"{package} {importlib.metadata.version(package)}: passed")
