"""``kohort demo``: a year of flights through a consumer group, and the proof that none is missing."""
