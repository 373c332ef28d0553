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


PACKAGES = {"langchain": langchain, "llama-index-core": llama_index, "pydantic-ai-slim": pydantic_ai}
PACKAGES[package]()
print(f"{package} {importlib.metadata.version(package)}: passed")
