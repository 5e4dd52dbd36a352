"""Programs that write parts of the project; not in the wheel."""
