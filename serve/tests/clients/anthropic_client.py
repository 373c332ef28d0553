"""The `anthropic` package as a client: python anthropic_client.py CHAT_URL KEY. Ends with an error where one answer is wrong."""

import sys

import anthropic

url, key = sys.argv[1:]
client = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
ASK = dict(model="demo", max_tokens=12, extra_body={"temperature": 0}, messages=[{"role": "user", "content": "Once upon a time"}])
ADD = {"name": "add", "description": "Adds.", "input_schema": {
    "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"]}}


def whole_and_streamed():
    whole = client.messages.create(**ASK)
    assert whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 12, whole
    with client.messages.stream(**ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text, (text, whole, final)
    assert final.usage.output_tokens == 12 and final.stop_reason == "max_tokens", final
    counted = client.messages.count_tokens(model="demo", messages=ASK["messages"]).input_tokens
    assert counted == whole.usage.input_tokens + whole.usage.cache_read_input_tokens, (counted, whole.usage)


def tools():
    ask = ASK | dict(max_tokens=400, tools=[ADD], tool_choice={"type": "tool", "name": "add"})
    whole = client.messages.create(**ask)
    call = whole.content[0]
    assert whole.stop_reason == "tool_use" and call.name == "add" and 0 <= call.input["a"] <= 9, whole
    with client.messages.stream(**ask) as stream:
        final = stream.get_final_message()
    assert final.content[0].input == call.input, (final, whole)
    turns = ASK["messages"] + [
        {"role": "assistant", "content": whole.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "7"}]},
    ]
    assert client.messages.create(**ASK | dict(messages=turns)).content[0].text


def stops():
    told = client.messages.create(**ASK | dict(max_tokens=60, stop_sequences=["a"]))
    assert (told.stop_reason, told.stop_sequence) == ("stop_sequence", "a"), told


def errors():
    for kind, ask in [
        (anthropic.BadRequestError, ASK | dict(extra_body={"temperature": -1})),
        (anthropic.BadRequestError, ASK | dict(messages=[{"role": "user", "content": "word " * 3000}])),
        (anthropic.NotFoundError, ASK | dict(model="claude")),
    ]:
        try:
            client.messages.create(**ask)
        except kind as error:
            assert error.body["type"] == "error", error.body
        else:
            raise AssertionError(ask)
    try:
        anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0).messages.create(**ASK)
    except anthropic.AuthenticationError:
        return
    raise AssertionError("a wrong key is taken")


for test in (whole_and_streamed, tools, stops, errors):
    test()
    print(f"anthropic {anthropic.__version__}: {test.__name__} ok")
