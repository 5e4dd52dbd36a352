"""Walks through the code, counted from traces: how many files a reader opens, and how often."""
