"""Programs that a page of the site runs in a web worker, by Pyodide. They also run on CPython."""
