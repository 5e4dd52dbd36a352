"""Measurements. Each module runs as ``python -m benchmarks.<name>``."""
