"""The client side of a consumer group."""
