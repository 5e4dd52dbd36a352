// The panel of the page browser.md: a live cluster and its group.
import { Progress, button, element } from "./dom.js";
import { Python } from "./python.js";

const RECORDS = 60;
const LOG_LINES = 200;
const PARTITION_HEADS = ["Partition", "Owner", "Written", "Committed", "Read by each member"];
const MEMBER_HEADS = ["Member", "State", "Partitions", "Records read", "End"];
const STATES = { running: "runs", closed: "closed", killed: "killed" };
const ENDS = {
  kill: (name) => `Member ${name} was killed. Its partitions stay with it for 3 s, until its `
    + "session ends.",
  close: (name) => `Member ${name} leaves the group, and the others get its partitions.`,
};

export class Panel {
  constructor(place) {
    this.place = place;
    this.progress = new Progress();
    this.python = new Python({
      ...this.progress.handlers(),
      state: (state) => this.show(state),
      log: (line) => this.log(line),
    });
    this.begun = 0;
    this.members = new Map();
    this.build();
  }

  build() {
    this.start = button("Start the cluster", () => this.run());
    this.start.classList.add("live-main");
    this.produce = button(`Produce ${RECORDS} records`, () => this.send("produce"));
    this.add = button("Add a member", () => this.send("add"));
    this.figure = element("div", { className: "live-figure" });
    this.partitionRows = element("tbody");
    this.memberRows = element("tbody");
    this.lines = element("ol", { className: "live-log", tabIndex: 0 });
    this.running = element(
      "div",
      { hidden: true },
      this.figure,
      table("Partitions of the topic orders", PARTITION_HEADS, this.partitionRows),
      table("Members of the group billing", MEMBER_HEADS, this.memberRows),
      element("details", {}, element("summary", {}, "Log"), this.lines),
    );
    const bar = element("div", { className: "live-bar" }, this.start, this.produce, this.add);
    this.place.replaceChildren(bar, this.progress.element, this.running);
    this.enable(false);
    this.progress.say("Start loads Python into this page. Nothing leaves your browser.");
    new ResizeObserver(() => this.resize()).observe(this.place);
  }

  enable(isRunning) {
    this.start.disabled = isRunning;
    this.produce.disabled = this.add.disabled = !isRunning;
  }

  width() {
    return Math.max(this.place.clientWidth, 280);
  }

  resize() {
    if (!this.running.hidden) {
      this.send("width");
    }
  }

  // Start everything and measure the time to the first record.
  async run() {
    this.begun = performance.now();
    this.start.disabled = true;
    this.progress.say("Loading Python");
    try {
      await this.python.call("start", { width: this.width() });
      await this.python.call("produce", { count: RECORDS });
      await this.python.call("add");
      this.running.hidden = false;
      this.enable(true);
      this.progress.say("The cluster runs, and member A joins the group.");
    } catch (error) {
      this.progress.fail(`The cluster does not run. ${error.message}`);
    }
  }

  async send(name, values = { produce: { count: RECORDS }, width: { width: this.width() } }[name]) {
    try {
      await this.python.call(name, values);
    } catch (error) {
      this.progress.fail(error.message);
    }
  }

  log(line) {
    this.lines.append(element("li", {}, line));
    if (this.lines.childElementCount > LOG_LINES) {
      this.lines.firstElementChild.remove();
    }
  }

  show({ partitions, members, svg }) {
    const colours = new Map(members.map(({ name }, number) => [name, number]));
    this.figure.innerHTML = svg;
    this.partitionRows.replaceChildren(...partitions.map((each) => partitionRow(each, colours)));
    for (const member of members) {
      this.showMember(member, colours);
    }
    const read = members.reduce((sum, member) => sum + member.read, 0);
    if (read && !this.place.dataset.firstRecordMs) {
      const ms = Math.round(performance.now() - this.begun);
      this.place.dataset.firstRecordMs = ms;
      const seconds = (ms / 1000).toFixed(1);
      this.progress.say(`Member A read its first record ${seconds} s after the start.`);
    }
  }

  // The buttons stay the same elements, so that they keep the focus of the keyboard.
  showMember({ name, state, partitions, read }, colours) {
    if (!this.members.has(name)) {
      this.members.set(name, this.newMember(name, colours));
    }
    const { row, buttons } = this.members.get(name);
    const texts = [STATES[state] ?? state, partitions.join(", ") || "none", read];
    texts.forEach((text, number) => {
      row.children[number + 1].textContent = text;
    });
    row.dataset.partitions = partitions.join(" ");
    for (const each of buttons) {
      each.disabled = state !== "running";
    }
  }

  newMember(name, colours) {
    const buttons = ["kill", "close"].map((how) => {
      const made = button(how === "kill" ? "Kill" : "Close", () => {
        this.progress.say(ENDS[how](name));
        this.send(how, { name });
      });
      made.setAttribute("aria-label", `${made.textContent} member ${name}`);
      return made;
    });
    const ends = element("span", { className: "live-ends" }, ...buttons);
    const row = tableRow(badge(name, colours), "", "", "", ends);
    row.dataset.member = name;
    this.memberRows.append(row);
    return { row, buttons };
  }
}

function partitionRow({ number, owner, written, committed, read }, colours) {
  const parts = Object.entries(read).map(([name, count]) => `${name}: ${count}`);
  const row = tableRow(number, badge(owner, colours), written, committed, parts.join(", "));
  row.dataset.owner = owner;
  return row;
}

function badge(owner, colours) {
  if (!owner) {
    return "no owner";
  }
  return element("span", { className: `live-badge live-owner-${colours.get(owner) % 6}` }, owner);
}

function tableRow(head, ...contents) {
  const first = element("th", { scope: "row" }, head);
  return element("tr", {}, first, ...contents.map((each) => element("td", {}, each)));
}

function table(caption, heads, body) {
  const row = element("tr", {}, ...heads.map((each) => element("th", { scope: "col" }, each)));
  const head = element("thead", {}, row);
  const title = element("caption", {}, caption);
  const made = element("table", { className: "live-grid" }, title, head, body);
  // The keyboard can scroll it where it is wider than the page.
  const place = { className: "live-table", tabIndex: 0, role: "region", "aria-label": caption };
  return element("div", place, made);
}
