"""Fetch requests: plan, connections, sessions and sizes, and the intake of their responses."""
