// Tables and code that scroll get the focus of the keyboard, or only a mouse could scroll them.
function letKeyboardScroll() {
  const found = document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code");
  for (const element of found) {
    if (element.scrollWidth > element.clientWidth) {
      element.tabIndex = 0;
    }
  }
}

window.addEventListener("load", letKeyboardScroll);
window.addEventListener("resize", letKeyboardScroll);
