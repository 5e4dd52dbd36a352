"""The commands ``kohort groups`` and ``kohort top``."""
