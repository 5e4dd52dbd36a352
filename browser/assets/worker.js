// The web worker of a page: Python in WebAssembly with kohort, and the programs of browser/live.
// All files are in the folder "files" beside this one, so nothing comes from another host.
const FOLDER = new URL("files/", self.location.href);
const plainFetch = self.fetch.bind(self);
let loaded = 0;
let total = 0;

function post(kind, value) {
  self.postMessage({ kind, value });
}

// Each file passes here, also those that Pyodide requests, so that the page can show the progress.
self.fetch = async (...request) => {
  const response = await plainFetch(...request);
  if (!response.ok) {
    throw new Error(`the file ${response.url} has the status ${response.status}`);
  }
  const counter = new TransformStream({
    transform(chunk, controller) {
      loaded += chunk.byteLength;
      post("progress", { loaded, total });
      controller.enqueue(chunk);
    },
  });
  const { headers, status } = response;
  return new Response(response.body.pipeThrough(counter), { headers, status });
};

async function bytesOf(name) {
  return (await fetch(new URL(name, FOLDER))).arrayBuffer();
}

// Return a Python whose path has the packages. It imports from the archive without unpacking it.
async function start({ packages, place }) {
  const archive = bytesOf(packages);
  const { loadPyodide } = await import(new URL("pyodide.mjs", FOLDER));
  const pyodide = await loadPyodide({
    indexURL: FOLDER.href,
    stdout: (line) => post("log", line),
    stderr: (line) => post("log", line),
    fsInit: async (FS) => FS.writeFile(place, new Uint8Array(await archive)),
  });
  pyodide.pyimport("sys").path.append(place);
  return pyodide;
}

async function load() {
  const listed = await plainFetch(new URL("bundle.json", FOLDER));
  if (!listed.ok) {
    throw new Error("this site was built without it, by `make docs ARGS=--without-browser`");
  }
  const bundle = await listed.json();
  total = bundle.bytes;
  const pyodide = await start(bundle);
  post("importing", null);
  const { Worker, accept_past_times } = pyodide.pyimport("browser.live.worker");
  accept_past_times(pyodide.pyimport("asyncio").get_event_loop());
  const ffi = pyodide.pyimport("pyodide.ffi");
  // Only a promise can block, so the question is asked in one.
  const canBlock = await pyodide.runPythonAsync("import pyodide; pyodide.ffi.can_run_sync()");
  const send = (text) => {
    const { kind, value } = JSON.parse(text);
    post(kind, value);
  };
  // Python has null as an object, and undefined as None.
  return Worker(send, canBlock ? ffi.run_sync : undefined);
}

const ready = load();

ready.then(
  () => post("ready", null),
  (error) => post("broken", String(error.message ?? error)),
);

self.onmessage = async ({ data }) => {
  const { id, ...call } = data;
  try {
    const worker = await ready;
    const result = JSON.parse(await worker.call(JSON.stringify(call)));
    self.postMessage({ kind: "result", id, value: result });
  } catch (error) {
    // The last line of a traceback is the class and the message of the error.
    const line = String(error.message ?? error).trim().split("\n").at(-1);
    self.postMessage({ kind: "failed", id, value: line.replace(/^[\w.]+: /, "") });
  }
};
