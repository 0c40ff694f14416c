// Calls to `holdfast rpc`, for the plugins of pi and OpenCode. The process is started with the first call.

import { spawn } from "node:child_process";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

const COMMAND = ["{program}", "{arguments}"]; // `holdfast install` writes both; no variable of the project changes them
const FOLDER = dirname(fileURLToPath(import.meta.url)); // nothing is looked up in the project
const TIMEOUT_MS = Number(process.env.HOLDFAST_TIMEOUT_MS || 5000);

export class Memory {
  #child;
  #waiting = new Map();
  #next = 1;
  #rest = "";
  project; // its settings may say that it has a memory of its own

  constructor(project) {
    this.project = project;
  }

  #start() {
    if (this.#child && this.#child.exitCode === null) return;
    const [program, ...words] = COMMAND;
    const options = this.project ? ["--project", this.project] : [];
    this.#child = spawn(program, [...words, "rpc", ...options], { cwd: FOLDER, stdio: ["pipe", "pipe", "ignore"] });
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
    const timer = setTimeout(() => child.kill(), TIMEOUT_MS);
    await ended;
    clearTimeout(timer); // else the host does not end before it
  }
}
