"""Brokers that run in this process, with their APIs, group coordinator, logs and security.

:mod:`kohort.testing` starts and controls them. Nothing here knows the client.
"""
# Private: see docs/reference/api.md for the public names.
