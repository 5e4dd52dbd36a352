"""Helpers of the tests: what the machine can run, and Apache Kafka as a process."""
