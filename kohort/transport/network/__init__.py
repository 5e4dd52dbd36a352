"""Byte streams to one address: TCP, TLS, proxies, and waiting for them on asyncio or trio."""
