"""Options of any section: their types, checks and values, such as secrets and URLs."""
