"""Compiled modules, if they were built from the source that is here.

``KOHORT_PURE=1`` in the environment selects the plain modules. A compiled module that was built
from another state of its source is not used, as after an edit of an editable installation.
"""

from __future__ import annotations

import functools
import importlib
import os
import warnings
import zlib
from pathlib import Path
from typing import Any

SOURCES = (
    "_record.py",
    "_record_decoder.py",
    "_record_decoder_c.pxd",
    "_columns.py",
    "_columns_c.pxd",
    "_capsule_c.pyx",
    "_capsule.h",
    "_iteration.py",
    "_iteration_c.pxd",
    "_message.py",
    "_message_c.pxd",
    "_step.h",
    "_record.h",
    "_record_type.h",
    "_record_type_c.pxd",
    "_record_type_c.pyx",
    "_native.h",
    "_native.pxd",
    "_unpack.h",
)


@functools.cache
def source_state(folder: Path, sources: tuple[str, ...]) -> int:
    """Return a checksum of the source of the compiled modules, or 0 without the source."""
    state = 0
    for name in sources:
        path = folder / name
        if not path.exists():
            return 0
        state = zlib.crc32(path.read_bytes(), state)
    return state


def compiled_module(
    name: str, package: str = "kohort.records", sources: tuple[str, ...] = SOURCES
) -> Any:
    """Return a compiled module of a package, or None if the plain one must be used.

    ``sources`` are the files in the folder of the package that it was compiled from.
    """
    return module_or_reason(name, package, sources)[0]


def module_or_reason(
    name: str, package: str = "kohort.records", sources: tuple[str, ...] = SOURCES
) -> tuple[Any, str]:
    """Return a compiled module, or None with the reason why it is not used."""
    if os.environ.get("KOHORT_PURE") == "1":
        return None, "KOHORT_PURE=1 is set"
    full_name = f"{package}.{name}"
    try:
        compiled = importlib.import_module(full_name)
    except ModuleNotFoundError as error:
        if error.name == full_name:
            return None, "this installation has no compiled modules"
        return None, f"{full_name} cannot be imported: {error}"
    except ImportError as error:
        return None, f"{full_name} cannot be imported: {error}"
    state = source_state(Path(str(compiled.__file__)).parent, sources)
    if state and compiled.built_from() != state:
        warnings.warn(
            f"{full_name} was built from another state of its source and is not used: "
            "install kohort again (pip install -e .), or set KOHORT_PURE=1",
            RuntimeWarning,
            stacklevel=3,
        )
        return None, f"{full_name} was built from another state of its source"
    return compiled, ""
