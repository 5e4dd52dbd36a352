// "Run" beside an example: its text runs in a web worker, as it is or as the reader edits it.
import { Progress, button, element } from "./dom.js";
import { Python, STOPPED } from "./python.js";

let shown = null; // the example whose output is shown
let python = null; // one worker runs the examples of a page, one after the other

function worker() {
  const tell = (kind) => (value) => shown?.on[kind]?.(value);
  const kinds = ["progress", "importing", "ready", "output", "log"];
  python ??= new Python(Object.fromEntries(kinds.map((kind) => [kind, tell(kind)])));
  return python;
}

// The element before a block of code, where the buttons are.
export class Example {
  constructor(place) {
    this.block = place.nextElementSibling;
    this.code = this.block.querySelector("code");
    this.editor = null;
    this.progress = new Progress();
    this.output = element("pre", { className: "live-output", tabIndex: 0, hidden: true });
    this.output.setAttribute("aria-label", "Output of the example");
    this.output.setAttribute("role", "log");
    this.on = {
      ...this.progress.handlers(),
      output: (text) => this.output.append(text),
      log: (line) => this.output.append(`${line}\n`),
    };
    this.run = button("Run", () => this.start());
    this.stop = button("Stop", () => this.end());
    this.edit = button("Edit", () => this.toggle());
    this.run.classList.add("live-main");
    this.stop.disabled = true;
    place.replaceChildren(this.run, this.stop, this.edit);
    this.block.after(this.progress.element, this.output);
  }

  toggle() {
    if (this.editor) {
      this.editor.replaceWith(this.block);
      this.editor = null;
      this.edit.textContent = "Edit";
      return;
    }
    const text = this.code.textContent;
    this.editor = element("textarea", {
      className: "live-editor",
      value: text,
      rows: text.split("\n").length,
      spellcheck: false,
      wrap: "off",
      "aria-label": "Program of the example",
    });
    this.block.replaceWith(this.editor);
    this.editor.focus();
    this.edit.textContent = "Show the original";
  }

  async start() {
    if (shown) {
      this.progress.fail("Another example runs. Stop it, or wait for its end.");
      return;
    }
    shown = this;
    this.run.disabled = true;
    this.stop.disabled = false;
    this.output.replaceChildren();
    this.output.hidden = false;
    this.progress.say("Runs");
    const begun = performance.now();
    try {
      const code = this.editor?.value ?? this.code.textContent;
      const isDone = await worker().call("run", { code });
      const seconds = ((performance.now() - begun) / 1000).toFixed(1);
      if (isDone) {
        this.progress.say(`Ended after ${seconds} s`);
      } else {
        this.progress.fail(`Ended with an error after ${seconds} s. The output has its reason.`);
      }
    } catch (error) {
      if (error.message === STOPPED) {
        this.progress.say("Stopped");
      } else {
        this.progress.fail(`The example does not run. ${error.message}`);
      }
    }
    shown = null;
    this.run.disabled = false;
    this.stop.disabled = true;
  }

  // Nothing else ends a program that waits for ever.
  end() {
    worker().stop();
  }
}
