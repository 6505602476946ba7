// Drives an ACP agent with the official client, and validates every line of the agent by the published schema.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { PassThrough, Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";
import Ajv from "ajv/dist/2020.js";
import { serve } from "./driver.mjs";

const path = createRequire(import.meta.url).resolve("@agentclientprotocol/sdk/schema/v1/schema.json");
const schema = JSON.parse(readFileSync(path, "utf8"));
const ajv = new Ajv({ strict: false, validateFormats: false });
ajv.addSchema(schema, "acp");
const REQUESTS = {
  "session/update": "SessionNotification",
  "session/request_permission": "RequestPermissionRequest",
  "fs/read_text_file": "ReadTextFileRequest",
};
const RESPONSES = {
  initialize: "InitializeResponse",
  "session/new": "NewSessionResponse",
  "session/load": "LoadSessionResponse",
  "session/prompt": "PromptResponse",
};

function check(name, value, faults) {
  const validate = ajv.getSchema(`acp#/$defs/${name}`);
  if (!validate(value)) faults.push(`${name}: ${ajv.errorsText(validate.errors)} in ${JSON.stringify(value)}`);
}

await serve({
  // Opens a session, or loads one, and sends it a prompt. Permissions are answered by `choose`.
  async prompt({ command, cwd, env, capabilities, session, say, choose }) {
    const agent = spawn(command[0], command.slice(1), { cwd, env: { ...process.env, ...env }, stdio: ["pipe", "pipe", "ignore"] });
    const [faults, updates, asked, sent] = [[], [], [], {}];
    const [lines, tee] = [new PassThrough(), new PassThrough()];
    agent.stdout.on("data", (data) => (lines.write(data), tee.write(data)));
    agent.stdout.on("end", () => (lines.end(), tee.end()));
    const input = new PassThrough();
    let [written, read] = ["", ""];
    input.on("data", (data) => {
      written += data;
      const whole = written.split("\n");
      written = whole.pop();
      for (const line of whole) {
        const message = JSON.parse(line);
        if (message.method && message.id !== undefined) sent[message.id] = message.method;
      }
      agent.stdin.write(data);
    });
    tee.on("data", (data) => {
      read += data;
      const whole = read.split("\n");
      read = whole.pop();
      for (const line of whole) {
        const message = JSON.parse(line);
        if (message.method) check(REQUESTS[message.method] ?? "AgentRequest", message.params, faults);
        else if (message.result && RESPONSES[sent[message.id]]) check(RESPONSES[sent[message.id]], message.result, faults);
      }
    });
    const client = acp
      .client({ name: "test" })
      .onNotification(acp.methods.client.session.update, ({ params }) => void updates.push(params.update))
      .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
        asked.push(params.toolCall);
        return { outcome: { outcome: "selected", optionId: choose } };
      })
      .onRequest(acp.methods.client.fs.readTextFile, () => ({ content: "the text" }));
    const result = await client.connectWith(
      acp.ndJsonStream(Writable.toWeb(input), Readable.toWeb(lines)),
      async (cx) => {
        await cx.request(acp.methods.agent.initialize, { protocolVersion: 1, clientCapabilities: capabilities ?? {} });
        const where = { cwd: "/project", mcpServers: [] };
        const opened = session
          ? (await cx.request(acp.methods.agent.session.load, { sessionId: session, ...where }), session)
          : (await cx.request(acp.methods.agent.session.new, where)).sessionId;
        const { stopReason } = await cx.request(acp.methods.agent.session.prompt, {
          sessionId: opened,
          prompt: [{ type: "text", text: say }],
        });
        return { session: opened, stopReason };
      },
    );
    const ended = new Promise((resolve) => agent.on("exit", resolve));
    agent.stdin.end();
    const said = updates.filter((each) => each.sessionUpdate === "agent_message_chunk").map((each) => each.content.text);
    return { ...result, updates, asked, faults, said: said.join(""), code: await ended };
  },
});
