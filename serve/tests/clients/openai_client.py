"""The `openai` package as a client: python openai_client.py CHAT_URL EMBED_URL KEY SEE_URL PICTURE. Ends with an error where one answer is wrong."""

import base64
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

import openai
from openai.types import Completion, CreateEmbeddingResponse, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.shared import ErrorObject
from pydantic import BaseModel, Field, TypeAdapter

chat_url, embed_url, key, see_url, picture = sys.argv[1:]
client = openai.OpenAI(base_url=f"{chat_url}/v1", api_key=key, max_retries=0)
MESSAGES = [{"role": "user", "content": "Once upon a time"}]
ASK = dict(model="demo", messages=MESSAGES, max_tokens=12)


def refused(kind, param, ask, **more):
    try:
        ask(**more)
    except kind as error:
        assert error.param == param, (error.param, error)
        return error
    raise AssertionError(f"{more} is answered")


def running():
    request = urllib.request.Request(f"{chat_url}/metrics", headers={"authorization": f"Bearer {key}"})
    text = urllib.request.urlopen(request).read().decode()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("serve_running ")))


def models():
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").id == "demo"
    refused(openai.NotFoundError, "model", client.models.retrieve, model="other")


def whole_and_streamed():
    options = dict(ASK, seed=7, temperature=0.8, n=2, logprobs=True, top_logprobs=3)
    whole = client.chat.completions.create(**options)
    assert whole.usage.completion_tokens == 24 and whole.usage.prompt_tokens == 8
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 3
    texts = ["", ""]
    for chunk in client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices], texts
    assert chunk.usage.completion_tokens == 24 and not chunk.choices


def helper_streams():
    asked = dict(ASK, temperature=0, max_tokens=100, stop="was")  # an answer that is cut off is an exception of the helper
    with client.chat.completions.stream(**asked) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in events, events
    assert final.choices[0].message.content == client.chat.completions.create(**asked).choices[0].message.content


def texts():
    answer = client.completions.create(model="demo", prompt=["Once upon a time", "The fox"], max_tokens=5, logprobs=2)
    assert len(answer.choices) == 2 and len(answer.choices[0].logprobs.tokens) == 5
    parts = client.completions.create(model="demo", prompt=[1, 5, 9], max_tokens=5, stream=True)
    assert "".join(part.choices[0].text for part in parts)


def schemas():
    class Fox(BaseModel):
        age: int = Field(ge=0, le=9)

    answer = client.chat.completions.parse(**dict(ASK, max_tokens=100), response_format=Fox)
    assert 0 <= answer.choices[0].message.parsed.age <= 9
    answer = client.chat.completions.create(**ASK, stop=["was"], temperature=0)
    assert "was" not in answer.choices[0].message.content and answer.choices[0].finish_reason == "stop"


def tools():
    number = {"type": "integer", "minimum": 0, "maximum": 9}
    parameters = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}
    tool = {"type": "function", "function": {"name": "add", "description": "Adds", "parameters": parameters}}
    options = dict(model="demo", tools=[tool], tool_choice="required", max_tokens=300, seed=3)
    messages = [{"role": "user", "content": "What is 1 + 2?"}]
    answer = client.chat.completions.create(messages=messages, **options)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls" and message.content is None
    calls = {}
    for chunk in client.chat.completions.create(messages=messages, **options, stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            calls[call.index] = calls.get(call.index, "") + call.function.arguments
    assert calls == {at: call.function.arguments for at, call in enumerate(message.tool_calls)}, calls
    for call in message.tool_calls:
        numbers = json.loads(call.function.arguments)
        messages += [message, {"role": "tool", "tool_call_id": call.id, "content": str(numbers["a"] + numbers["b"])}]
    answer = client.chat.completions.create(model="demo", messages=messages, tools=[tool], max_tokens=10)
    assert answer.choices[0].message.content


def responses():
    create, ask = client.responses.create, dict(model="demo", input="Once upon a time", max_output_tokens=12, temperature=0)
    whole = create(**ask, instructions="Be brief.")
    assert whole.id.startswith("resp_") and whole.output[0].id.startswith("msg_"), whole
    assert (whole.status, whole.incomplete_details.reason, whole.usage.output_tokens) == ("incomplete", "max_output_tokens", 12), whole
    assert create(**ask).output_text == client.chat.completions.create(**ASK, temperature=0).choices[0].message.content
    with client.responses.stream(**ask | dict(max_output_tokens=100), extra_body={"stop": "was"}) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.status == "completed" and final.output_text == text and text, final
    kinds = [event.type for event in create(**ask, stream=True)]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"], kinds
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete"], kinds
    logprobs = create(**ask, top_logprobs=2, include=["message.output_text.logprobs"]).output[0].content[0].logprobs
    assert len(logprobs) == 12 and len(logprobs[0].top_logprobs) == 2, logprobs

    more = create(**ask | dict(input="And then?"), previous_response_id=whole.id)
    said = [{"role": "user", "content": ask["input"]}, *whole.output, {"role": "user", "content": "And then?"}]
    assert more.output_text == create(**ask | dict(input=said)).output_text
    assert client.responses.input_tokens.count(model="demo", input="And then?", previous_response_id=whole.id).input_tokens == more.usage.input_tokens
    assert client.responses.retrieve(more.id).output_text == more.output_text
    items = list(client.responses.input_items.list(whole.id))
    assert [item.content[0].text for item in items] == [ask["input"]], items
    client.responses.delete(whole.id)
    assert create(**ask, previous_response_id=more.id).id  # it still knows what was before it
    unkept = create(**ask, store=False).id
    for gone in (whole.id, unkept, "resp_none"):
        refused(openai.NotFoundError, "response_id", client.responses.retrieve, response_id=gone)
        error = refused(openai.BadRequestError, "previous_response_id", create, **ask, previous_response_id=gone)
        assert error.code == "previous_response_not_found", error
    for param, wrong in [
        ("tools[0].type", dict(tools=[{"type": "web_search"}])),
        ("background", dict(background=True)),
        ("conversation", dict(conversation="conv_1")),
        ("text.format", dict(text={"format": {"type": "json_schema", "name": "n", "schema": {"not": {}}}})),
        ("input[0].content[0].type", dict(input=[{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}])),
    ]:
        refused(openai.BadRequestError, param, create, **ask | wrong)


def responses_tools():
    class Fox(BaseModel):
        age: int = Field(ge=0, le=9)

    ask = dict(model="demo", input="Once upon a time", max_output_tokens=300)
    assert 0 <= client.responses.parse(**ask, text_format=Fox).output_parsed.age <= 9
    tool = openai.pydantic_function_tool(Fox)["function"] | {"type": "function"}
    ask |= dict(tools=[tool], tool_choice={"type": "function", "name": "Fox"}, parallel_tool_calls=False, extra_body={"seed": 3})
    call = client.responses.create(**ask).output[-1]
    assert call.type == "function_call" and 0 <= json.loads(call.arguments)["age"] <= 9, call
    with client.responses.stream(**ask) as stream:
        events = list(stream)
    done = next(event for event in events if event.type == "response.function_call_arguments.done")
    assert done.arguments == call.arguments and events[-1].response.output[-1].arguments == call.arguments, events
    said = [{"role": "user", "content": ask["input"]}, call, {"type": "function_call_output", "call_id": call.call_id, "output": "ok"}]
    assert client.responses.create(model="demo", input=said, tools=[tool | {"strict": False}], max_output_tokens=5).output


def embeddings():
    embed = openai.OpenAI(base_url=f"{embed_url}/v1", api_key=key).embeddings.create
    asked = dict(model="bert", input=["The cat sat on the mat.", "Cats run."])
    as_bytes, as_numbers = embed(**asked), embed(**asked, encoding_format="float")  # the package asks for base64 by itself
    assert [one.embedding for one in as_bytes.data] == [one.embedding for one in as_numbers.data]
    assert len(embed(**dict(asked, dimensions=8)).data[1].embedding) == 8


def published_types():
    """Raw answers and events hold the types of the package, which OpenAI generates from its own description: it reads them without a check."""

    def raw(url, path, body=None):
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        request = urllib.request.Request(url + path, headers=headers, data=json.dumps(body).encode() if body else None)
        try:
            return urllib.request.urlopen(request).read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def holds(kind, *texts):
        assert texts, kind
        for text in texts:
            TypeAdapter(kind).validate_json(text, strict=True)

    def events(url, path, body):
        lines = raw(url, path, body | {"stream": True}).splitlines()
        return [line[6:] for line in lines if line.startswith("data: ") and line != "data: [DONE]"]

    number = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"]}
    function = {"name": "add", "parameters": number}
    ask, count = dict(messages=MESSAGES, max_tokens=12), {"stream_options": {"include_usage": True}}
    calls = dict(ask, tools=[{"type": "function", "function": function}], tool_choice="required", max_tokens=300, seed=3)
    for body in (ask, dict(ask, n=2, logprobs=True, top_logprobs=3), calls):
        holds(ChatCompletion, raw(chat_url, "/v1/chat/completions", body))
        holds(ChatCompletionChunk, *events(chat_url, "/v1/chat/completions", body), *events(chat_url, "/v1/chat/completions", body | count))
    for body in (dict(prompt="The fox"), dict(prompt=["The fox", "One"], n=2, logprobs=2), dict(prompt="The fox", echo=True)):
        body["max_tokens"] = 5
        holds(Completion, raw(chat_url, "/v1/completions", body))
        for event in map(json.loads, events(chat_url, "/v1/completions", body | count)):
            for choice in event["choices"]:  # null before the end, as OpenAI's own streams have it, which its description forgets
                choice["finish_reason"] = choice["finish_reason"] or "stop"
            holds(Completion, json.dumps(event))
    for form in ("float", "base64"):
        answer = json.loads(raw(embed_url, "/v1/embeddings", {"input": ["a", "b"], "encoding_format": form}))
        for one in answer["data"]:  # the package makes numbers of base64
            one["embedding"] = [0.0] if form == "base64" else one["embedding"]
        holds(CreateEmbeddingResponse, json.dumps(answer))
    holds(Model, raw(chat_url, "/v1/models/demo"), *map(json.dumps, json.loads(raw(chat_url, "/v1/models"))["data"]))
    ask = dict(input="Once upon a time", max_output_tokens=12)
    logprobs = dict(ask, top_logprobs=2, include=["message.output_text.logprobs"])
    calls = dict(ask, max_output_tokens=300, tools=[dict(function, type="function")], tool_choice="required", seed=3)
    for body in (ask, logprobs, calls, dict(ask, max_output_tokens=100, stop="was", temperature=0)):
        holds(Response, raw(chat_url, "/v1/responses", body))
        holds(ResponseStreamEvent, *events(chat_url, "/v1/responses", body))
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"):
        holds(ErrorObject, json.dumps(json.loads(raw(chat_url, path, {"x": 1}))["error"]))


def images():
    create = openai.OpenAI(base_url=f"{see_url}/v1", api_key="none", max_retries=0).chat.completions.create
    url = "data:image/png;base64," + base64.b64encode(pathlib.Path(picture).read_bytes()).decode()

    def ask(*parts, **more):
        content = [{"type": "image_url", "image_url": {"url": part}} if ":" in part else {"type": "text", "text": part} for part in parts]
        return create(**dict(dict(model="bf16", messages=[{"role": "user", "content": content}], max_tokens=4, temperature=0), **more))

    answer = ask(url, "What is this?")
    assert answer.usage.prompt_tokens == 37 and answer.usage.completion_tokens == 4, answer.usage
    text = "".join(chunk.choices[0].delta.content or "" for chunk in ask(url, "What is this?", stream=True) if chunk.choices)
    assert text == answer.choices[0].message.content
    assert ask("One ", url, " and two", url).usage.prompt_tokens > 37
    for wrong in ("https://localhost/cat.png", "file:///etc/passwd", "data:image/png;base64,?", "data:image/png,x"):
        refused(openai.BadRequestError, "messages[0].content[0].image_url", lambda wrong=wrong: ask(wrong))


def errors():
    create = client.chat.completions.create
    for param, more in [
        ("temperature", dict(temperature=-1)),
        ("n", dict(n=1000)),
        ("audio", dict(audio={"voice": "alloy", "format": "wav"})),
        ("modalities", dict(modalities=["audio"])),
        ("web_search_options", dict(web_search_options={})),
        ("response_format", dict(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}})),
        ("messages[0].content[0].image_url", dict(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])),
    ]:
        refused(openai.BadRequestError, param, create, **dict(ASK, **more))
    refused(openai.NotFoundError, "model", create, **dict(ASK, model="gpt-4o"))
    long = [{"role": "user", "content": "word " * 2000}]
    error = refused(openai.APIStatusError, "messages", create, **dict(ASK, messages=long))
    assert error.status_code == 400 and "maximum context length is" in error.message and error.code == "context_length_exceeded"
    stranger = openai.OpenAI(base_url=f"{chat_url}/v1", api_key="wrong")
    refused(openai.AuthenticationError, None, stranger.models.list)


def disconnects():
    stream = client.chat.completions.create(**dict(ASK, max_tokens=400), stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    client.with_options(timeout=10).models.list()
    begun = time.time()
    while running():
        assert time.time() - begun < 30, "it goes on"
        time.sleep(0.05)


for test in (models, whole_and_streamed, helper_streams, texts, schemas, tools, responses, responses_tools, published_types, embeddings, images, errors, disconnects):
    test()
    print(f"python, openai {openai.__version__}: {test.__name__} ok")
