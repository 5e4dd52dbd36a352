"""TLS: contexts from the options, certificates, keys, and errors that name the option."""
