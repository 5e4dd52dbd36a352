// Elements that the panel and the examples share.

// Return a new element. Properties that it does not have become attributes.
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) {
      made[key] = value;
    } else {
      made.setAttribute(key, value);
    }
  }
  made.append(...children);
  return made;
}

export function button(text, action) {
  return element("button", { type: "button", className: "live-button", onclick: action }, text);
}

// The line that says what happens, and the bar of a worker that loads.
export class Progress {
  constructor() {
    this.text = element("p", { className: "live-status", role: "status" });
    this.bar = element("progress", { hidden: true, "aria-label": "Loaded part of Python" });
    this.element = element("div", {}, this.text, this.bar);
  }

  say(text) {
    if (this.text.textContent !== text) {
      this.text.textContent = text;
    }
    this.text.classList.remove("live-failed");
  }

  fail(text) {
    this.say(text);
    this.text.classList.add("live-failed");
    this.bar.hidden = true;
  }

  // Functions for the messages of a worker that loads.
  handlers() {
    return {
      progress: ({ loaded, total }) => {
        this.bar.hidden = false;
        this.bar.max = total;
        this.bar.value = loaded;
        // Screen readers speak the text, so it changes only once for each megabyte.
        this.say(`Loading Python: ${Math.round(loaded / 1e6)} of ${Math.round(total / 1e6)} MB`);
      },
      importing: () => this.say("Loading Python: starting kohort"),
      ready: () => {
        this.bar.hidden = true;
      },
    };
  }
}
