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

window.addEventListener("load", letKeyboardScroll);
window.addEventListener("resize", letKeyboardScroll);
