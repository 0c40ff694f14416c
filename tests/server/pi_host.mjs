// Stands for pi: loads the extension as it does, and asks for the window of each request on standard input.
import { createInterface } from "node:readline";

const { default: extend } = await import(process.argv[2]);
const warnings = [];
const handlers = {};
extend({ on: (event, handle) => (handlers[event] = handle), registerCommand() {} });
for await (const line of createInterface({ input: process.stdin })) {
  const { messages, limit } = JSON.parse(line);
  const hasUI = process.env.PI_HOST_UI !== "none"; // `pi -p` has none
  const ctx = {
    cwd: "/work",
    hasUI,
    ui: hasUI ? { notify: (text) => warnings.push(text) } : undefined,
    model: { id: "m1", contextWindow: limit },
    sessionManager: { getSessionId: () => "s1" },
  };
  await handlers.session_start({}, ctx);
  const found = messages.length ? await handlers.context({ messages }, ctx) : undefined;
  console.log(JSON.stringify({ messages: found?.messages ?? messages, warnings: warnings.splice(0) }));
}
await handlers.session_shutdown();
