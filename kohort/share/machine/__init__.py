"""The state machines of a share consumer: events in, commands out, without I/O and clock."""
