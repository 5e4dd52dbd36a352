"""Configs of the cluster, its brokers, topics and groups: types, sources and checks."""
