// Runs chats with OpenAI's Node SDK: whole, streamed, with tools. One line of JSON per request on stdout.
//
// Environment: `WB_KEY`, and `WB_CASES` as JSON: a list of `{"base": URL, "model": NAME, "kind": KIND}` with the kinds
// `chat`, `stream`, `tools`, `tools_stream`. The SDK's own retries are off: what fails, fails here.
"use strict";

const assert = require("node:assert");
const { OpenAI } = require("openai");

const TOOLS = [{
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather in a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
}];
const MESSAGES = [{ role: "user", content: "What is the weather in Zürich? 🌦" }];

async function whole(client, model, messages, more) {
  const { data, response } =
    await client.chat.completions.create({ model, messages, ...more }).withResponse();
  const { message, finish_reason: finish } = data.choices[0];
  return {
    request: response.headers.get("x-request-id"), text: message.content, calls: message.tool_calls ?? [], finish,
    usage: data.usage,
  };
}

async function streamed(client, model, messages, more) {
  const wanted = { model, messages, stream: true, stream_options: { include_usage: true }, ...more };
  const { data, response } = await client.chat.completions.create(wanted).withResponse();
  const seen = { request: response.headers.get("x-request-id"), text: null, calls: [], finish: null, usage: null };
  for await (const chunk of data) {
    seen.usage = chunk.usage ?? seen.usage;
    for (const { delta, finish_reason: finish } of chunk.choices) {
      if (delta.content) seen.text = (seen.text ?? "") + delta.content;
      seen.finish = finish ?? seen.finish;
      for (const part of delta.tool_calls ?? []) {
        const call = (seen.calls[part.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
        call.id = part.id ?? call.id;
        call.function.name += part.function?.name ?? "";
        call.function.arguments += part.function?.arguments ?? "";
      }
    }
  }
  return seen;
}

function tell(given, step, seen) {
  assert(seen.usage?.prompt_tokens > 0, "no usage");
  const calls = seen.calls.map((call) => [call.function.name, call.function.arguments]);
  const { request, text, finish } = seen;
  console.log(JSON.stringify({ ...given, sdk: "node", step, request, text, calls, finish }));
}

async function main() {
  for (const given of JSON.parse(process.env.WB_CASES)) {
    const client = new OpenAI({ baseURL: `${given.base}/v1`, apiKey: process.env.WB_KEY, maxRetries: 0, timeout: 60_000 });
    const ask = given.kind.endsWith("stream") ? streamed : whole;
    if (!given.kind.startsWith("tools")) {
      tell(given, 1, await ask(client, given.model, MESSAGES, {}));
      continue;
    }
    const first = await ask(client, given.model, MESSAGES, { tools: TOOLS });
    tell(given, 1, first);
    assert(JSON.parse(first.calls[0].function.arguments).city, "no usable tool call");
    const told = { role: "assistant", content: null, tool_calls: first.calls };
    const results = first.calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: "Rain, 7 °C." }));
    tell(given, 2, await ask(client, given.model, [...MESSAGES, told, ...results], { tools: TOOLS }));
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
