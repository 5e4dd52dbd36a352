"""Python processes of Spark: cheaper garbage collections between tasks."""

from __future__ import annotations

import gc
import os

_frozen: set[int] = set()


def freeze_modules() -> None:
    """Exempt the loaded objects from later garbage collections, once per process.

    Spark calls ``gc.collect()`` after each task and each planning. It takes 30 ms, nearly all of it
    for the modules of pyspark, Arrow and kohort, which live as long as the process. Processes that
    Spark did not start keep their collections.
    """
    process = os.getpid()
    if process not in _frozen and os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
        _frozen.add(process)
        gc.freeze()
