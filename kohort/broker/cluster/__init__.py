"""State of the cluster: topics, leaders, controller, transactions, and the brokers."""
