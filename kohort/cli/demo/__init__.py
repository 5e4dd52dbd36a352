"""``kohort demo``: a year of flights through a consumer group, and proof that none is missing."""
