// Calls to `holdfast rpc`, for the plugins of OpenClaw, OpenCode and pi. The process is started with the first call.
// A call that is not answered must not hold up the host: after two in a row memory is not asked for a while.

import { spawn } from "node:child_process";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

const COMMAND = ["{program}", "{arguments}"]; // `holdfast install` writes both; no variable of the project changes them
const FOLDER = dirname(fileURLToPath(import.meta.url)); // nothing is looked up in the project
const TIMEOUT_MS = Number(process.env.HOLDFAST_TIMEOUT_MS) || 2000;
const EXIT_MS = 200; // how long a host that ends waits; the process goes on alone with the calls that it has
const MAX_FAILURES = 2;
const PAUSE_MS = Number(process.env.HOLDFAST_PAUSE_MS) || 60000;

// The process has ended, did not start, or did not answer in time.
class UnansweredError extends Error {}

export class Memory {
  #child;
  #waiting = new Map();
  #next = 1;
  #rest = "";
  #failures = 0; // in a row
  #pausedUntil = 0;
  #isHanging = false; // a call was given up, and nothing has come from the process since
  project; // its settings may say that it has a memory of its own
  command; // instead of that of the installation
  timeoutMs = TIMEOUT_MS;
  env = process.env;
  log = () => {};

  constructor(options = {}) {
    Object.assign(this, options);
  }

  // Whether the last call was not answered.
  get isFailing() {
    return this.#failures > 0;
  }

  // Whether the log says that memory is not asked: it does so once, however often memory fails after that.
  get isReported() {
    return this.#failures >= MAX_FAILURES;
  }

  // Whether memory is not asked now.
  get isPaused() {
    return Date.now() < this.#pausedUntil;
  }

  async call(method, params, timeout = this.timeoutMs) {
    if (this.isPaused) throw new Error("memory has failed and is not asked for a while");
    try {
      const result = await this.#ask(method, params, timeout);
      this.#recover();
      return result;
    } catch (error) {
      if (error instanceof UnansweredError) this.#fail(error);
      else this.#recover(); // an answer, if not the one that was hoped for
      throw error;
    }
  }

  // Makes a call that may take long, once the process has shown that it answers at all.
  async callSlowly(method, params, timeout) {
    await this.call("ping", {});
    return await this.call(method, params, timeout);
  }

  // Starts the process, so that the first call does not wait for it.
  start() {
    try {
      this.#start();
      this.#keepAlive(false);
    } catch {
      // The first call says why.
    }
  }

  async close() {
    const child = this.#child;
    if (!child) return;
    if (this.#isHanging) child.kill("SIGKILL");
    this.#keepAlive(true);
    let timer;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    const isLate = new Promise((resolve) => (timer = setTimeout(resolve, EXIT_MS)));
    child.stdin.end();
    await Promise.race([ended, isLate]);
    clearTimeout(timer); // else the host does not end before it
    for (const call of this.#waiting.values()) call.timer.unref?.(); // as above
    this.#keepAlive(false);
  }

  #fail(error) {
    this.#failures++;
    if (this.#failures < MAX_FAILURES) return;
    this.#pausedUntil = Date.now() + PAUSE_MS;
    if (this.#failures > MAX_FAILURES) return;
    const pause = `${Math.round(PAUSE_MS / 1000)} seconds`;
    this.log(`memory failed ${this.#failures} times in a row and is not asked for ${pause}: ${error.message}`);
  }

  #recover() {
    if (this.#failures >= MAX_FAILURES) this.log("memory answers again");
    this.#failures = 0;
    this.#pausedUntil = 0;
    this.#isHanging = false;
  }

  #start() {
    if (this.#child && this.#isHanging && this.#failures >= MAX_FAILURES) {
      this.#child.kill("SIGKILL");
      this.#child = undefined;
    }
    if (this.#child) return;
    this.#isHanging = false;
    const [program, ...words] = this.command ? [this.command] : COMMAND;
    const options = this.project ? ["--project", this.project] : [];
    let child;
    try {
      child = spawn(program, [...words, "rpc", ...options], {
        cwd: FOLDER,
        env: this.env,
        stdio: ["pipe", "pipe", "ignore"],
      });
    } catch (error) {
      throw new UnansweredError(error.message); // Bun does not wait for the event to say so
    }
    const end = (reason) => {
      if (this.#child !== child) return;
      this.#child = undefined;
      this.#rest = "";
      for (const call of this.#waiting.values()) call.reject(new UnansweredError(reason));
      this.#waiting.clear();
    };
    child.on("error", (error) => end(error.message));
    child.on("exit", (code) => end(`\`${program} rpc\` has ended with code ${code}: run \`holdfast doctor\``));
    child.stdin.on("error", () => {});
    child.stdout.setEncoding("utf8").on("data", (text) => {
      if (this.#child !== child) return;
      const lines = (this.#rest + text).split("\n");
      this.#rest = lines.pop();
      for (const line of lines) this.#answer(line);
    });
    this.#child = child;
  }

  #answer(line) {
    let answer;
    try {
      answer = JSON.parse(line);
    } catch {
      return; // something that the program prints before it answers
    }
    const call = this.#waiting.get(answer.id);
    if (!call) this.#recover(); // the answer to a call that was given up: the process is slow, and does not hang
    else if (answer.error) call.reject(Object.assign(new Error(answer.error.message), { type: answer.error.type }));
    else call.resolve(answer.result);
  }

  async #ask(method, params, timeout) {
    this.#start();
    const id = this.#next++;
    let timer;
    try {
      return await new Promise((resolve, reject) => {
        timer = setTimeout(() => {
          this.#isHanging = true;
          reject(new UnansweredError(`holdfast ${method} took longer than ${timeout} ms`));
        }, timeout);
        this.#waiting.set(id, { resolve, reject, timer });
        this.#keepAlive(true);
        this.#child.stdin.write(JSON.stringify({ id, method, params }) + "\n");
      });
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(id);
      this.#keepAlive(this.#waiting.size > 0);
    }
  }

  // A waiting call keeps Node running, an idle process does not.
  #keepAlive(on) {
    for (const part of [this.#child, this.#child?.stdin, this.#child?.stdout]) part?.[on ? "ref" : "unref"]?.();
  }
}
