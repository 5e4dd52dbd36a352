"""Connections of clients to the brokers, over TCP or in memory."""
