// Holdfast for pi: every request is assembled by Holdfast, and every message is archived.
// One `holdfast rpc` process answers for a session. Where it fails, pi goes on as it would without it.

import { spawn } from "node:child_process";

const COMMAND = process.env.HOLDFAST_COMMAND || "holdfast";
const TIMEOUT_MS = Number(process.env.HOLDFAST_TIMEOUT_MS || 5000);

class Memory {
  #child;
  #waiting = new Map();
  #next = 1;
  #rest = "";

  #start() {
    if (this.#child && this.#child.exitCode === null) return;
    this.#child = spawn(COMMAND, ["rpc"], { stdio: ["pipe", "pipe", "ignore"], shell: process.platform === "win32" });
    this.#child.on("error", (error) => this.#fail(error));
    this.#child.on("exit", () => this.#fail(new Error("holdfast rpc has ended")));
    this.#child.stdin.on("error", () => {});
    this.#child.stdout.setEncoding("utf8").on("data", (text) => {
      const lines = (this.#rest + text).split("\n");
      this.#rest = lines.pop();
      for (const line of lines) {
        const answer = JSON.parse(line);
        const call = this.#waiting.get(answer.id);
        this.#waiting.delete(answer.id);
        if (call && answer.error) call.reject(new Error(answer.error.message));
        else if (call) call.resolve(answer.result);
      }
    });
  }

  #fail(error) {
    for (const call of this.#waiting.values()) call.reject(error);
    this.#waiting.clear();
  }

  call(method, params) {
    this.#start();
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(id);
        reject(new Error(`holdfast ${method} took longer than ${TIMEOUT_MS} ms`));
      }, TIMEOUT_MS);
      const done = (settle) => (value) => {
        clearTimeout(timer);
        settle(value);
      };
      this.#waiting.set(id, { resolve: done(resolve), reject: done(reject) });
      this.#child.stdin.write(JSON.stringify({ id, method, params }) + "\n");
    });
  }

  async close() {
    const child = this.#child;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.stdin.end();
    await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, TIMEOUT_MS))]);
    if (child.exitCode === null) child.kill();
  }
}

export default function (pi) {
  let memory = new Memory();
  let trouble = "";

  const owner = (ctx) => ({ session: ctx.sessionManager.getSessionId(), project: ctx.cwd });

  const attempt = async (ctx, work) => {
    try {
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
