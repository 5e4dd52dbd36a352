"""What a consumer does in its event loop: membership, positions, commits and fetches together."""
