"""Runs chats with OpenAI's Python SDK: whole, streamed, with tools. One line of JSON per request on stdout.

Environment: `WB_KEY`, and `WB_CASES` as JSON: a list of `{"base": URL, "model": NAME, "kind": KIND}` with the kinds
`chat`, `stream`, `tools`, `tools_stream`. The SDK's own retries are off: what fails, fails here.
"""

import json
import os

from openai import OpenAI

TOOLS = [{
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}]
MESSAGES = [{"role": "user", "content": "What is the weather in Zürich? 🌦"}]


def whole(client, model, messages, **more):
    raw = client.chat.completions.with_raw_response.create(model=model, messages=messages, **more)
    answer = raw.parse()
    choice = answer.choices[0]
    calls = [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls or []]
    return raw.headers["x-request-id"], choice.message.content, calls, choice.finish_reason, answer.usage


def streamed(client, model, messages, **more):
    stream = client.chat.completions.create(
        model=model, messages=messages, stream=True, stream_options={"include_usage": True}, **more)
    text, calls, finish, usage = "", {}, None, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, ["", "", ""])
                call[0] = part.id or call[0]
                call[1] += part.function.name or ""
                call[2] += part.function.arguments or ""
    request = stream.response.headers["x-request-id"]
    return request, text or None, [tuple(call) for call in calls.values()], finish, usage


def tell(case, step, request, text, calls, finish, usage):
    assert usage is not None and usage.prompt_tokens > 0, "no usage"
    print(json.dumps({
        **case, "sdk": "python", "step": step, "request": request, "text": text,
        "calls": [list(call[1:]) for call in calls], "finish": finish,
    }), flush=True)


def main():
    for case in json.loads(os.environ["WB_CASES"]):
        client = OpenAI(base_url=case["base"] + "/v1", api_key=os.environ["WB_KEY"], max_retries=0, timeout=60)
        ask = streamed if case["kind"].endswith("stream") else whole
        if not case["kind"].startswith("tools"):
            tell(case, 1, *ask(client, case["model"], MESSAGES))
            continue
        first = ask(client, case["model"], MESSAGES, tools=TOOLS)
        tell(case, 1, *first)
        calls = first[2]
        assert calls and json.loads(calls[0][2])["city"], f"no usable tool call: {first}"
        told = [{"role": "assistant", "content": None, "tool_calls": [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls
        ]}]
        results = [{"role": "tool", "tool_call_id": call[0], "content": "Rain, 7 °C."} for call in calls]
        tell(case, 2, *ask(client, case["model"], MESSAGES + told + results, tools=TOOLS))


main()
