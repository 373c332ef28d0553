"""The `ollama` package as a client: python ollama_client.py CHAT_URL KEY. Ends with an error where one answer is wrong."""

import importlib.metadata
import json
import sys

import ollama

url, key = sys.argv[1:]
client = ollama.Client(host=url, headers={"authorization": f"Bearer {key}"})
MESSAGES = [{"role": "user", "content": "Once upon a time"}]
ASK = dict(model="demo", messages=MESSAGES, options={"temperature": 0, "num_predict": 12})


def models():
    assert [model.model for model in client.list().models] == ["demo:latest"]
    assert [model.model for model in client.ps().models] == ["demo:latest"]
    shown = client.show("demo:latest")
    assert shown.details.family == "llama" and "completion" in shown.capabilities, shown
    assert shown.modelinfo["llama.context_length"] == 512 and shown.template, shown


def chats():
    whole = client.chat(**ASK)
    assert whole.done and whole.done_reason == "length" and whole.eval_count == 12 and whole.total_duration > 0, whole
    parts = list(client.chat(**ASK, stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content, parts
    assert parts[-1].done and parts[-1].eval_count == 12 and parts[-1].prompt_eval_count == whole.prompt_eval_count, parts[-1]
    assert client.chat(**ASK | dict(model="demo:latest")).message.content == whole.message.content
    told = client.chat(**ASK | dict(options={"temperature": 0, "num_predict": 100, "stop": ["was"]}))
    assert told.done_reason == "stop" and "was" not in told.message.content, told
    logprobs = client.chat(**ASK, logprobs=True, top_logprobs=2).logprobs
    assert len(logprobs) == 12 and len(logprobs[0].top_logprobs) == 2, logprobs


def texts():
    ask = dict(model="demo", prompt="Once upon a time", options=ASK["options"])
    whole = client.generate(**ask)
    assert whole.response == client.chat(**ASK).message.content, whole
    assert "".join(part.response for part in client.generate(**ask, stream=True)) == whole.response
    assert client.generate(**ask, raw=True).response


def schemas():
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["age"], "additionalProperties": False}
    answer = client.chat(**ASK | dict(options={"num_predict": 100}), format=schema)
    assert 0 <= json.loads(answer.message.content)["age"] <= 9, answer


def tools():
    def add(a: int, b: int) -> int:
        """Adds.

        Args:
            a: a number
            b: another one
        """
        return a + b

    call = {"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    turns = [*MESSAGES, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_name": "add", "content": "3"}]
    assert client.chat(**ASK | dict(messages=turns), tools=[add]).message.content


def errors():
    for status, ask in [(404, ASK | dict(model="llama3")), (400, ASK | dict(options={"mirostat": 2})), (400, ASK | dict(messages=[]))]:
        try:
            client.chat(**ask)
        except ollama.ResponseError as error:
            assert error.status_code == status and error.error, error
        else:
            raise AssertionError(ask)


for test in (models, chats, texts, schemas, tools, errors):
    test()
    print(f"ollama {importlib.metadata.version('ollama')}: {test.__name__} ok")
