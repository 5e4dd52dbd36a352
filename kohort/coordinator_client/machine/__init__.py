"""What both group protocols share: commands, events, the data of a member, and how it leaves.

The package has no I/O and no clock.
"""
