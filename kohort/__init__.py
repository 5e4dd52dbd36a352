"""kohort: a client for Kafka consumer groups."""
