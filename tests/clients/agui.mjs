// Drives HttpAgent of @ag-ui/client.
import { HttpAgent } from "@ag-ui/client";
import { serve, streams } from "./driver.mjs";

const agents = {};

await serve({
  open({ name = "a", url, thread, headers, messages }) {
    agents[name] = new HttpAgent({ url, threadId: thread, headers, initialMessages: messages });
  },
  // `pending` replaces the interrupts that the client wants answered all at once.
  async run({ name = "a", say, add = [], resume, tools, runId, state, pending, cut, context }) {
    const agent = agents[name];
    if (say) agent.addMessage({ id: say.id, role: "user", content: say.text });
    for (const message of add) agent.addMessage(message);
    if (state) agent.setState(state);
    if (pending) agent.pendingInterrupts = agent.pendingInterrupts.filter((each) => pending.includes(each.id));
    const [events, before] = [[], streams.length];
    let failed = null;
    let result = null;
    let ended = null;
    try {
      ({ result } = await agent.runAgent(
        { runId, tools, resume, context },
        {
          // The connection is closed once this text is shown.
          onMessagesChanged: ({ messages }) => {
            if (cut && messages.at(-1).content === cut) agent.abortRun();
          },
          onEvent: ({ event }) => void events.push(event.type),
          onRunFinishedEvent: ({ event }) => void (ended = event),
          onRunErrorEvent: ({ event }) => void (ended = event),
        },
      ));
    } catch (error) {
      failed = { message: String(error.message), status: error.status, payload: error.payload };
    }
    const stream = streams.slice(before).map((each) => each.text).join("");
    const { messages, pendingInterrupts: interrupts } = agent;
    return { messages, state: agent.state, interrupts, result, ended, events, failed, stream };
  },
});
