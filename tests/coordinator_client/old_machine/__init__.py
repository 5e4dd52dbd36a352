"""The former membership machine. The differential test compares the new one with it."""
