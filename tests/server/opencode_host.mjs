// Stands for OpenCode: loads the plugin as it does, and asks for the window of each request on standard input. Messages
// come and go in the form of pi, as those of the other hosts do.
import { createInterface } from "node:readline";

const { Holdfast } = await import(process.argv[2]);
const warnings = [];
let context;
const client = {
  app: { log: async ({ body }) => warnings.push(body.message) },
  config: { providers: async () => ({ data: { providers: [{ id: "p", models: { m1: { limit: { context } } } }] } }) },
};
let hooks;

// One message of OpenCode for a user message, or for a reply with the results of its calls.
function toOpenCode(messages) {
  const made = [];
  for (const [index, message] of messages.entries()) {
    const base = { sessionID: "s1", messageID: `msg_${index}` };
    if (message.role === "toolResult") {
      const part = made.at(-1).parts.find((one) => one.callID === message.toolCallId);
      part.state = { ...part.state, status: "completed", output: message.content[0].text };
      continue;
    }
    const parts = message.content.map((part, place) => {
      const id = `prt_${index}_${place}`;
      if (part.type === "text") return { ...base, id, type: "text", text: part.text };
      return { ...base, id, type: "tool", callID: part.id, tool: part.name, state: { status: "running", input: part.arguments } };
    });
    const info = { id: `msg_${index}`, role: message.role, sessionID: "s1", time: {}, model: { providerID: "p", modelID: "m1" } };
    made.push({ info, parts });
  }
  return made;
}

function fromOpenCode({ info, parts }) {
  const content = [];
  const results = [];
  for (const part of parts) {
    if (part.type === "text") content.push({ type: "text", text: part.text });
    else {
      content.push({ type: "toolCall", id: part.callID, name: part.tool, arguments: part.state.input });
      const output = [{ type: "text", text: part.state.output }];
      results.push({ role: "toolResult", toolCallId: part.callID, toolName: part.tool, content: output });
    }
  }
  return [{ role: info.role, content }, ...results];
}

for await (const line of createInterface({ input: process.stdin })) {
  const { messages, limit } = JSON.parse(line);
  context = limit;
  hooks ??= await Holdfast({ client, directory: "/work" });
  const change = { messages: toOpenCode(messages) };
  await hooks["experimental.chat.messages.transform"]({}, change);
  console.log(JSON.stringify({ messages: change.messages.flatMap(fromOpenCode), warnings: warnings.splice(0) }));
}
await hooks?.dispose();
