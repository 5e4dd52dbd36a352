"""Demo ``kohort demo``: a group reads a year of flights, and every record is accounted for."""
