// Python in a web worker, which is loaded at the first call.

// Message of the error of calls that stop() ends.
export const STOPPED = "the worker was stopped";
const BROKEN = "Python cannot be loaded";

const WORKER = new URL("worker.js", import.meta.url);

// `on` has a function for each kind of message: progress, importing, ready, state, output and
// log. Calls of a worker that breaks have an error.
export class Python {
  constructor(on) {
    this.on = on;
    this.worker = null;
    this.waiting = new Map();
    this.last = 0;
  }

  // Call a method of the worker. The promise has its result.
  call(name, values = {}) {
    this.worker ??= this.start();
    this.last += 1;
    const id = this.last;
    this.worker.postMessage({ id, call: name, with: values });
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }

  // End the worker with everything that runs in it.
  stop(reason = STOPPED) {
    this.worker?.terminate();
    this.worker = null;
    for (const { reject } of this.waiting.values()) {
      reject(new Error(reason));
    }
    this.waiting.clear();
  }

  start() {
    const worker = new Worker(WORKER, { type: "module" });
    worker.onmessage = ({ data }) => this.receive(data);
    worker.onerror = (event) => {
      event.preventDefault();
      this.break("the browser refused its program. Use a current browser");
    };
    return worker;
  }

  receive({ kind, id, value }) {
    if (kind === "result") {
      this.waiting.get(id).resolve(value);
      this.waiting.delete(id);
    } else if (kind === "failed") {
      this.waiting.get(id).reject(new Error(value));
      this.waiting.delete(id);
    } else if (kind === "broken") {
      this.break(`${value}. Check the connection, and reload the page`);
    } else {
      this.on[kind]?.(value);
    }
  }

  break(reason) {
    this.stop(`${BROKEN}: ${reason}.`);
  }
}
