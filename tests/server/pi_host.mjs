// Stands for pi: loads the extension as it does, and asks for the window of each request on standard input.
import { createInterface } from "node:readline";

const { default: extend } = await import(process.argv[2]);
const warnings = [];
const handlers = {};
extend({ on: (event, handle) => (handlers[event] = handle), registerCommand() {} });
for await (const line of createInterface({ input: process.stdin })) {
  const { messages, limit } = JSON.parse(line);
  const ctx = {
    cwd: "/work",
    hasUI: true,
    ui: { notify: (text) => warnings.push(text) },
    model: { id: "m1", contextWindow: limit },
    sessionManager: { getSessionId: () => "s1" },
  };
  const found = await handlers.context({ messages }, ctx);
  console.log(JSON.stringify({ messages: found?.messages ?? messages, warnings: warnings.splice(0) }));
}
await handlers.session_shutdown();
