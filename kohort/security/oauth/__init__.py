"""OAuth tokens: token endpoints, files, providers, and the lifetime of a token."""
