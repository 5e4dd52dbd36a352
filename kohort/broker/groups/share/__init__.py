"""Share groups of the coordinator (KIP-932): members, assignments, and initialized partitions."""
