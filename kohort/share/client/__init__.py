"""The requests of a share consumer, in the event loop of its engine."""
