"""Explanations and metrics, from what the engine knows. No I/O."""
