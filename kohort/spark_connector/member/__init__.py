"""The group member of a streaming query: its partitions, listener and thread."""
