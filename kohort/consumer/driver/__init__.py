"""What runs the engine for an API: a thread for KafkaConsumer, a task for AsyncKafkaConsumer."""
