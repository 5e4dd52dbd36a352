"""Committed offsets of a group: OffsetCommit and OffsetFetch, and when a member may commit."""
