"""Compression and checksums of record batches, and the memory of decompression."""
