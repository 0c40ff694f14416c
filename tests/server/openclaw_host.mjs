// Stands for OpenClaw: loads the plugin as it does, and makes the calls that come on standard input.
import { createInterface } from "node:readline";

const { default: plugin } = await import(process.argv[2]);
const warnings = [];
const tools = {};
let factory;
plugin.register({
  pluginConfig: { timeoutMs: Number(process.argv[3]) },
  logger: { warn: (text) => warnings.push(text) },
  registerContextEngine: (_id, create) => (factory = create),
  registerTool: (create, { name }) => (tools[name] = create),
});
let engine = await factory({ workspaceDir: "/work" });
for await (const line of createInterface({ input: process.stdin })) {
  const { method, params } = JSON.parse(line);
  let answer;
  if (method === "turn") {
    await engine.dispose(); // OpenClaw makes an engine for each turn
    engine = await factory({ workspaceDir: "/work" });
  } else if (method === "info") answer = { ...engine.info };
  else if (method in tools) answer = await tools[method](params.context).execute("1", params.values);
  else {
    try {
      answer = await engine[method](params);
    } catch (error) {
      answer = { error: error.message };
    }
  }
  console.log(JSON.stringify({ answer, warnings: warnings.splice(0) }));
}
