"""Brokers that run in this process: APIs, group coordinator, partition logs, transactions, security.

:mod:`kohort.testing` starts and controls them. Nothing here knows the client.
"""
