"""Helpers of the tests: checks of what the machine can run, and Apache Kafka as a process."""
