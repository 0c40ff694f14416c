// Holdfast for pi: every request is assembled by Holdfast, and every message is archived.
// One `holdfast rpc` process answers for a session. If it fails, requests have the newest messages that fit.

import { Memory } from "./holdfast/memory.js";
import { MESSAGES_SHARE, newestThatFit } from "./holdfast/newest.js";

export default function (pi) {
  let ui; // of the last event, if there is one; `pi -p` has none
  const warn = (text) => (ui ? ui.notify(`holdfast: ${text}`, "warning") : process.stderr.write(`holdfast: ${text}\n`));
  const memory = new Memory({ log: warn });

  const owner = (ctx) => ({ session: ctx.sessionManager.getSessionId(), project: ctx.cwd });

  // Returns what `work` returns; nothing if memory fails. The user is told, once if it goes on.
  const attempt = async (ctx, work) => {
    ui = ctx.hasUI ? ctx.ui : undefined;
    try {
      memory.project ??= ctx.cwd;
      return await work();
    } catch (error) {
      if (!memory.isReported) warn(error.message);
    }
  };

  pi.on("session_start", (_event, ctx) => {
    memory.project ??= ctx.cwd;
    memory.start(); // this takes longer than a request may
  });

  pi.on("context", async (event, ctx) => {
    const found = await attempt(ctx, async () => {
      const window = await memory.call("assemble", {
        ...owner(ctx),
        messages: event.messages,
        format: "pi",
        provider: "pi",
        host: "pi",
        ...(ctx.model ? { limit: ctx.model.contextWindow, model: ctx.model.id } : {}),
      });
      return { messages: window.messages };
    });
    if (found || !ctx.model) return found;
    return { messages: newestThatFit(event.messages, Math.floor(ctx.model.contextWindow * MESSAGES_SHARE)) };
  });

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
