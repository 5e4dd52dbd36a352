"""The consumer group protocol (KIP-848): ConsumerGroupHeartbeat, without I/O."""
