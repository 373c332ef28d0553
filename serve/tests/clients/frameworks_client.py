"""Packages of Python that ask servers for texts, tools, schemas and vectors, each as its own documentation begins:

    python frameworks_client.py PACKAGE URL KEY

The server has the models `demo`, with a context of 16,384, and `bert`. Ends with an error where one answer is wrong.
"""

import asyncio
import importlib.metadata
import sys

from raw import ASK, BASE, Fox, TOKENS, key, near, text, url, vectors

package = sys.argv[1]
CATS = ["The cat sat on the mat.", "Cats run."]


def langchain():
    from langchain.agents import create_agent
    from langchain.agents.structured_output import ProviderStrategy
    from langchain.chat_models import init_chat_model
    from langchain.messages import HumanMessage, ToolMessage
    from langchain.tools import tool
    from langchain_anthropic import ChatAnthropic
    from langchain_ollama import ChatOllama
    from langchain_openai import OpenAIEmbeddings

    @tool
    def remember(fox: Fox) -> str:
        """Remembers a fox."""
        return f"a fox of {fox.age}"

    said = text()
    settings = dict(base_url=BASE, api_key=key, temperature=0, max_retries=0)
    for more in (dict(use_responses_api=False), dict(use_responses_api=True)):
        model = init_chat_model("demo", model_provider="openai", max_tokens=TOKENS, **settings, **more)
        whole = model.invoke(ASK)
        assert whole.text == said and whole.usage_metadata["output_tokens"] == TOKENS, whole
        assert "".join(chunk.text for chunk in model.stream(ASK)) == said
        assert [answer.text for answer in model.batch([ASK, ASK])] == [said, said]
        longer = init_chat_model("demo", model_provider="openai", max_tokens=300, **settings, **more)
        for method in ("json_schema", "function_calling"):
            assert 0 <= longer.with_structured_output(Fox, method=method).invoke(ASK).age <= 9
        called = longer.bind_tools([remember], tool_choice="remember").invoke(ASK)
        call, = called.tool_calls
        assert call["name"] == "remember" and 0 <= call["args"]["fox"]["age"] <= 9, called
        result = remember.invoke(call)
        assert isinstance(result, ToolMessage) and result.tool_call_id == call["id"], result
        assert model.bind_tools([remember]).invoke([HumanMessage(ASK), called, result]).text
        agent = create_agent(longer, response_format=ProviderStrategy(Fox))
        assert 0 <= agent.invoke({"messages": [HumanMessage(ASK)]})["structured_response"].age <= 9

    for other in (
        ChatAnthropic(model="demo", base_url=url, api_key=key, temperature=0, max_tokens=TOKENS, max_retries=0),
        ChatOllama(model="demo", base_url=url, temperature=0, num_predict=TOKENS, client_kwargs={"headers": {"authorization": f"Bearer {key}"}}),
    ):
        assert other.invoke(ASK).text == said == "".join(chunk.text for chunk in other.stream(ASK)), other
    embeddings = OpenAIEmbeddings(model="bert", base_url=BASE, api_key=key, check_embedding_ctx_length=False)
    near(embeddings.embed_documents(CATS), vectors(*CATS))


def llama_index():
    from llama_index.core import Document, Settings, VectorStoreIndex
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.llms.openai_like import OpenAILike

    def model(tokens):
        return OpenAILike(
            model="demo", api_base=BASE, api_key=key, temperature=0, max_tokens=tokens, max_retries=0, context_window=16384,
            is_chat_model=True, is_function_calling_model=True,
        )

    def remember(age: int) -> str:
        """Remembers a fox."""
        return f"a fox of {age}"

    said, ask = text(), [ChatMessage(role="user", content=ASK)]
    llm, longer = model(TOKENS), model(300)
    assert llm.chat(ask).message.content == said == "".join(part.delta for part in llm.stream_chat(ask))
    assert llm.complete(ASK).text == said
    tool = FunctionTool.from_defaults(remember, fn_schema=Fox)
    answer = longer.chat_with_tools([tool], user_msg=ASK, tool_required=True)
    call, = longer.get_tool_calls_from_response(answer)
    assert call.tool_name == "remember" and 0 <= call.tool_kwargs["age"] <= 9, call
    result = ChatMessage(role="tool", content="ok", additional_kwargs={"tool_call_id": call.tool_id})
    assert llm.chat_with_tools([tool], chat_history=[*ask, answer.message, result]).message.content
    assert 0 <= longer.as_structured_llm(Fox).complete(ASK).raw.age <= 9

    Settings.llm = llm
    Settings.embed_model = OpenAILikeEmbedding(model_name="bert", api_base=BASE, api_key=key)
    near(Settings.embed_model.get_text_embedding_batch(CATS), vectors(*CATS))
    index = VectorStoreIndex.from_documents([Document(text=cat) for cat in CATS])
    found = index.as_query_engine(similarity_top_k=1).query(CATS[1])
    assert found.source_nodes[0].text == CATS[1] and str(found), found


def pydantic_ai():
    from pydantic_ai import Agent, ModelRequest, NativeOutput, ToolOutput
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    ages = []

    def remember(age: int) -> str:
        """Remembers a fox."""
        ages.append(age)
        return f"a fox of {age}"

    said = text()
    provider = OpenAIProvider(base_url=BASE, api_key=key)
    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        model = kind("demo", provider=provider)

        def agent(tokens=300, **more):
            return Agent(model, model_settings=dict(temperature=0, max_tokens=tokens), retries=0, **more)

        async def streamed():
            async with agent(TOKENS).run_stream(ASK) as run:
                return [part async for part in run.stream_text(delta=True)]

        whole = agent(TOKENS).run_sync(ASK)
        assert whole.output == said == "".join(asyncio.run(streamed())), whole
        for output in (Fox, ToolOutput(Fox), NativeOutput(Fox)):
            run = agent(output_type=output).run_sync(ASK)
            assert 0 <= run.output.age <= 9, run
        assert agent(TOKENS).run_sync("And then?", message_history=run.all_messages()).output
        run = agent(output_type=remember).run_sync(ASK)
        assert run.output == f"a fox of {ages[-1]}", run


def haystack():
    from haystack import Document, Pipeline
    from haystack.components.builders import ChatPromptBuilder
    from haystack.components.embedders import OpenAIDocumentEmbedder
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function
    from haystack.utils import Secret

    def remember(age: int) -> str:
        """Remembers a fox."""
        return f"a fox of {age}"

    server = dict(api_key=Secret.from_token(key), api_base_url=BASE)

    def generator(tokens=300, **more):
        settings = dict(temperature=0, max_completion_tokens=tokens) | more.pop("settings", {})
        return OpenAIChatGenerator(model="demo", generation_kwargs=settings, max_retries=0, **server, **more)

    said, parts, asked = text(), [], [ChatMessage.from_user(ASK)]
    pipeline = Pipeline()
    pipeline.add_component("prompt", ChatPromptBuilder(template=[ChatMessage.from_user("{{ask}}")]))
    pipeline.add_component("model", generator(TOKENS))
    pipeline.connect("prompt.prompt", "model.messages")
    assert pipeline.run({"prompt": {"ask": ASK}})["model"]["replies"][0].text == said
    whole = generator(TOKENS, streaming_callback=lambda chunk: parts.append(chunk.content)).run(asked)["replies"][0].text
    assert "".join(parts) == whole == said, parts
    held = generator(settings=dict(response_format=Fox)).run(asked)["replies"][0].text
    assert 0 <= Fox.model_validate_json(held).age <= 9, held

    tool = create_tool_from_function(remember)
    chosen = dict(tool_choice={"type": "function", "function": {"name": "remember"}})
    reply = generator(tools=[tool], settings=chosen).run(asked)["replies"][0]
    call = reply.tool_call
    results = [ChatMessage.from_tool(tool_result=tool.invoke(**call.arguments), origin=call)]
    assert generator(TOKENS, tools=[tool]).run([*asked, reply, *results])["replies"][0].text
    embedded = OpenAIDocumentEmbedder(model="bert", **server).run([Document(content=cat) for cat in CATS])["documents"]
    near([one.embedding for one in embedded], vectors(*CATS))


def smolagents():
    from smolagents import CodeAgent, OpenAIModel, tool

    ages = []

    @tool
    def remember(age: int) -> str:
        """Remembers a fox.

        Args:
            age: its age in years
        """
        ages.append(age)
        return f"a fox of {age}"

    def model(tokens=300, **more):
        return OpenAIModel("demo", api_base=BASE, api_key=key, temperature=0, max_tokens=tokens, **more)

    asked, said = [{"role": "user", "content": [{"type": "text", "text": ASK}]}], text()
    whole = model(TOKENS).generate(asked)
    assert whole.content == said == "".join(part.content or "" for part in model(TOKENS).generate_stream(asked)), whole
    assert whole.token_usage.output_tokens == TOKENS, whole
    schema = {"type": "json_schema", "json_schema": {"name": "fox", "schema": Fox.model_json_schema()}}
    assert 0 <= Fox.model_validate_json(model().generate(asked, response_format=schema).content).age <= 9
    called = model().generate(asked, tools_to_call_from=[remember]).tool_calls
    assert called[0].function.name == "remember", called
    # An agent goes through its steps: what the model writes is no program.
    agent = CodeAgent(tools=[], model=model(100), max_steps=1, verbosity_level=0)
    agent.run(ASK)
    assert agent.memory.steps[1].token_usage.output_tokens > 0, agent.memory.steps


def semantic_kernel():
    from openai import AsyncOpenAI
    from semantic_kernel import Kernel
    from semantic_kernel.connectors.ai import FunctionChoiceBehavior
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings, OpenAITextEmbedding
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.functions import kernel_function

    ages = []

    class Foxes:
        @kernel_function(description="Remembers a fox.")
        def remember(self, age: int) -> str:
            ages.append(age)
            return f"a fox of {age}"

    async def run():
        said, history = text(), ChatHistory()
        history.add_user_message(ASK)
        client = AsyncOpenAI(base_url=BASE, api_key=key, max_retries=0)
        service, kernel = OpenAIChatCompletion(ai_model_id="demo", async_client=client), Kernel()
        kernel.add_service(service)
        kernel.add_plugin(Foxes(), "foxes")
        brief = OpenAIChatPromptExecutionSettings(temperature=0, max_tokens=TOKENS)
        assert str(await service.get_chat_message_content(history, brief)) == said
        parts = [str(part) async for part in service.get_streaming_chat_message_content(history, brief)]
        assert "".join(parts) == said, parts
        held = OpenAIChatPromptExecutionSettings(temperature=0, max_tokens=300, response_format=Fox)
        assert 0 <= Fox.model_validate_json(str(await service.get_chat_message_content(history, held))).age <= 9
        tools = OpenAIChatPromptExecutionSettings(
            temperature=0, max_tokens=300, function_choice_behavior=FunctionChoiceBehavior.Required(auto_invoke=True)
        )
        assert await service.get_chat_message_content(history, tools, kernel=kernel) is not None and ages
        near(await OpenAITextEmbedding("bert", async_client=client).generate_embeddings(CATS), vectors(*CATS))

    asyncio.run(run())


PACKAGES = {
    "langchain": langchain,
    "llama-index-core": llama_index,
    "pydantic-ai-slim": pydantic_ai,
    "haystack-ai": haystack,
    "smolagents": smolagents,
    "semantic-kernel": semantic_kernel,
}
PACKAGES[package]()
print(f"{package} {importlib.metadata.version(package)}: passed")
