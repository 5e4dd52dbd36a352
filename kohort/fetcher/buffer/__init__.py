"""Fetched data until poll() returns its records: memory, queues, error policies and the drain."""
