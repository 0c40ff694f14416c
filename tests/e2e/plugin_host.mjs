// Stands for pi, OpenCode and OpenClaw: loads an installed plugin as each of them does, and lets it assemble one request.

const [, , host, file] = process.argv;
const project = process.cwd();
const message = { role: "user", content: [{ type: "text", text: "Which port does the replica use?" }], timestamp: 1 };
const module = await import(file);
const warnings = [];
let sent;

if (host === "pi") {
  const handlers = {};
  module.default({ on: (name, handler) => (handlers[name] = handler), registerCommand: () => {} });
  const ctx = {
    cwd: project,
    hasUI: true,
    ui: { notify: (text) => warnings.push(text) },
    sessionManager: { getSessionId: () => "s1" },
    model: { id: "m1", contextWindow: 32000 },
  };
  sent = (await handlers.context({ messages: [message] }, ctx))?.messages;
  await handlers.session_shutdown();
} else if (host === "opencode") {
  const client = {
    app: { log: async ({ body }) => warnings.push(body.message) },
    config: { providers: async () => ({ data: { providers: [] } }) },
  };
  const plugin = await module.Holdfast({ client, directory: project });
  const part = { id: "p1", type: "text", text: message.content[0].text };
  const info = { id: "m1", role: "user", sessionID: "s1", time: { created: 1 }, model: {} };
  const change = { messages: [{ info, parts: [part] }] };
  await plugin["experimental.chat.messages.transform"]({}, change);
  sent = change.messages;
  await plugin.dispose();
} else {
  let create;
  let stop;
  module.default.register({
    pluginConfig: { timeoutMs: 60000 },
    logger: { warn: (text) => warnings.push(text) },
    registerContextEngine: (_id, factory) => (create = factory),
    registerTool: () => {},
    registerService: (service) => (stop = service.stop),
  });
  const engine = await create({ workspaceDir: project });
  const request = { sessionId: "s1", sessionKey: "agent:main:x", messages: [message], tokenBudget: 8000, model: "m1" };
  sent = (await engine.assemble({ ...request, runtimeSettings: { limits: { maxOutputTokens: 1000 } } })).messages;
  stop();
}
console.log(JSON.stringify({ sent: sent?.length ?? 0, warnings }));
