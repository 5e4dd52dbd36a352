// Tables and code that scroll get the focus of the keyboard, or only a mouse could scroll them.
const SCROLLING = ".md-typeset__scrollwrap, .md-typeset table, .md-typeset pre > code";

function letKeyboardScroll() {
  const found = document.querySelectorAll(SCROLLING);
  for (const element of found) {
    if (element.scrollWidth > element.clientWidth) {
      element.tabIndex = 0;
    }
  }
}

// A wide table of text that does not fit is cut at its right edge. site.css shows each of its rows as
// a block instead, with a label at each cell. Tables of figures scroll, except on a narrow screen,
// because readers compare their rows.
const WIDE_COLUMNS = 5;
const NARROW = window.matchMedia("(max-width: 44.9375em)");

function labelWideTables() {
  for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
    const heads = [...table.querySelectorAll("thead th")];
    if (heads.length < WIDE_COLUMNS) {
      continue;
    }
    table.dataset.wide = "";
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, index) => {
        cell.dataset.label = heads[index]?.textContent ?? "";
      });
    }
  }
}

function layOutWideTables() {
  for (const table of document.querySelectorAll("table[data-wide]")) {
    table.removeAttribute("data-blocks");
    const box = table.closest(".md-typeset__scrollwrap") ?? table;
    const isCut = box.scrollWidth > box.clientWidth;
    const hasFigures = table.querySelector("td[style*='right']") !== null;
    table.toggleAttribute("data-blocks", NARROW.matches || (isCut && !hasFigures));
  }
}

function layOut() {
  layOutWideTables();
  letKeyboardScroll();
}

window.addEventListener("DOMContentLoaded", labelWideTables);
window.addEventListener("load", layOut);
window.addEventListener("resize", layOut);
