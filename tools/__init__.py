"""Programs that write parts of the project. They are not in the wheel."""
