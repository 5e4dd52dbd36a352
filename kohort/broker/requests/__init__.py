"""Handling of a request: decode it, check rights, apply faults, and call its API."""
