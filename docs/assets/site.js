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

// On a narrow screen site.css shows each row of a wide table as a block, with a label at each cell.
const WIDE_COLUMNS = 5;

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

window.addEventListener("DOMContentLoaded", labelWideTables);
window.addEventListener("load", letKeyboardScroll);
window.addEventListener("resize", letKeyboardScroll);
