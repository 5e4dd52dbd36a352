"""Simulation of the real client against the in-process cluster, on a virtual clock, by seed."""
