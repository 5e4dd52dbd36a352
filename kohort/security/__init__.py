"""Security of the client's connections: TLS contexts, SASL mechanisms, OAuth tokens."""
