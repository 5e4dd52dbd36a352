"""The cluster in the reader's browser: its files on the site, its programs and its check."""
