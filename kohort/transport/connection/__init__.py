"""One connection to a broker: frames, versions, login, and requests in flight."""
