"""All brokers of a cluster: their metadata, their connections, and the choice of one."""
