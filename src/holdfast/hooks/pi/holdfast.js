// Holdfast for pi: every request is assembled by Holdfast, and every message is archived.
// One `holdfast rpc` process answers for a session. Where it fails, pi goes on as it would without it.

import { Memory } from "./holdfast/memory.js";

export default function (pi) {
  const memory = new Memory();
  let trouble = "";

  const owner = (ctx) => ({ session: ctx.sessionManager.getSessionId(), project: ctx.cwd });

  const attempt = async (ctx, work) => {
    try {
      memory.project ??= ctx.cwd;
      const result = await work();
      trouble = "";
      return result;
    } catch (error) {
      if (ctx.hasUI && trouble !== error.message) ctx.ui.notify(`holdfast: ${error.message}`, "warning");
      trouble = error.message;
    }
  };

  pi.on("context", (event, ctx) =>
    attempt(ctx, async () => {
      const window = await memory.call("assemble", {
        ...owner(ctx),
        messages: event.messages,
        format: "pi",
        provider: "pi",
        ...(ctx.model ? { limit: ctx.model.contextWindow, model: ctx.model.id } : {}),
      });
      return { messages: window.messages };
    }),
  );

  pi.on("message_end", (event, ctx) =>
    attempt(ctx, async () => {
      if (event.message.role !== "assistant") return; // the next request brings the others
      await memory.call("append", { ...owner(ctx), messages: [event.message], format: "pi" });
    }),
  );

  pi.on("tool_result", (event, ctx) =>
    attempt(ctx, async () => {
      const { session: session_id, project: cwd } = owner(ctx);
      const call = { tool_name: event.toolName, tool_use_id: event.toolCallId, tool_response: event.content };
      const answer = await memory.call("hook", { hook_event_name: "PostToolUse", session_id, cwd, ...call });
      const content = answer.hookSpecificOutput?.updatedToolOutput;
      if (content) return { content };
    }),
  );

  pi.on("session_shutdown", () => memory.close());

  pi.registerCommand("recall", {
    description: "Show what Holdfast would recall for a question",
    handler: async (question, ctx) => {
      const found = await attempt(ctx, () => memory.call("recall", { ...owner(ctx), query: question }));
      if (found) ctx.ui.notify(found.block || `nothing is recalled: ${found.reason}`, "info");
    },
  });
}
