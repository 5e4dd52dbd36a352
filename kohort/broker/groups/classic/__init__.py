"""Classic groups: a state machine of members, rebalances and generations."""
