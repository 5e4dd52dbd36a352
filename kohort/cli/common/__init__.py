"""Parts of several commands: the connection, options, ranges, settings and tables."""
