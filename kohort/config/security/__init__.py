"""Sections of the security options: TLS, logins, tokens and proxies, and their checks together."""
