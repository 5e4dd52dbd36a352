"""Options of the source: names, values, and checks before any I/O."""
