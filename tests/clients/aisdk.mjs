// Drives Chat of @ai-sdk/react, the object behind useChat.
import { Chat } from "@ai-sdk/react";
import * as ai from "ai";
import { serve, streams } from "./driver.mjs";

const chats = {};

async function settle(chat, work, before) {
  let failed = null;
  try {
    await work;
  } catch (error) {
    failed = String(error.message);
  }
  if (chat.error) failed = String(chat.error.message);
  const stream = streams.slice(before).map((each) => each.text).join("");
  const statuses = streams.slice(before).map((each) => each.status);
  return { messages: chat.messages, status: chat.status, failed, stream, statuses };
}

await serve({
  open({ name = "a", url, id, headers, messages, body }) {
    const chat = new Chat({
      id,
      messages,
      transport: new ai.DefaultChatTransport({ api: url, headers, body }),
    });
    chats[name] = chat;
  },
  async send({ name = "a", message, cut }) {
    const [chat, before] = [chats[name], streams.length];
    const work = chat.sendMessage(message);
    if (cut) {
      // The reader leaves once this text is shown.
      while (!chat.messages.at(-1)?.parts.some((part) => part.type === "text" && part.text === cut && chat.messages.at(-1).role === "assistant"))
        await new Promise((resolve) => setImmediate(resolve));
      await chat.stop();
    }
    return settle(chat, work, before);
  },
  // Sends the chat as it is, with the answers that were added.
  async go({ name = "a" }) {
    const [chat, before] = [chats[name], streams.length];
    return settle(chat, chat.sendMessage(), before);
  },
  async regenerate({ name = "a", messageId }) {
    const [chat, before] = [chats[name], streams.length];
    return settle(chat, chat.regenerate({ messageId }), before);
  },
  async load({ url }) {
    return (await fetch(url)).json();
  },
  async resume({ name = "a" }) {
    const [chat, before] = [chats[name], streams.length];
    return settle(chat, chat.resumeStream(), before);
  },
  async approve({ name = "a", id, approved, reason }) {
    await chats[name].addToolApprovalResponse({ id, approved, reason });
  },
  async output({ name = "a", toolCallId, tool, output }) {
    const chat = chats[name];
    await (chat.addToolOutput ?? chat.addToolResult)({ toolCallId, tool, output });
  },
  // Whether each chunk of a recorded stream fits the schema of this version.
  async check({ stream }) {
    const schema = ai.uiMessageChunkSchema;
    const validator = typeof schema === "function" ? schema() : schema;
    const chunks = stream.split("\n").filter((line) => line.startsWith("data: {")).map((line) => JSON.parse(line.slice(6)));
    const wrong = [];
    for (const chunk of chunks) {
      const found = await validator.validate(chunk);
      if (!found.success) wrong.push({ chunk, error: String(found.error) });
    }
    return { count: chunks.length, wrong };
  },
});
