// The start of what runs Python in a page. Pages without a place for it load nothing more.
const panel = document.querySelector(".live-cluster");
if (panel) {
  import("./panel.js").then(({ Panel }) => new Panel(panel));
}

const examples = document.querySelectorAll(".live-run");
if (examples.length) {
  import("./example.js").then(({ Example }) => {
    for (const place of examples) {
      new Example(place);
    }
  });
}
