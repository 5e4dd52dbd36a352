"""What several commands share: the connection, options, ranges, settings and tables."""
