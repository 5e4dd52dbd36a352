"""Planning of offset ranges on the driver: lookups, limits, and detection of lost records."""
