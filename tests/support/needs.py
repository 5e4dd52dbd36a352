"""Requirements of tests on the machine, and the result where one is missing.

Normally such a test is skipped with the reason; with ``KOHORT_REQUIRE_REAL=1`` it fails instead.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from tests.support.kerberos import missing_program

MIN_JAVA = 17


def required() -> bool:
    """True if a missing Java, Maven or Spark is a failure."""
    return os.environ.get("KOHORT_REQUIRE_REAL", "0") not in ("", "0")


def java() -> str | None:
    """Return the ``java`` to run: that of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (path := Path(home, "bin", "java")).exists():
        return str(path)
    return shutil.which("java")


@functools.cache
def missing_java() -> str | None:
    """Return why Java cannot be used. None if it can."""
    program = java()
    if program is None:
        return f"Java {MIN_JAVA} or newer is not installed"
    answer = subprocess.run(
        [program, "-version"], capture_output=True, text=True, timeout=60, check=False
    )
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if found is None:
        return f"{program} -version does not answer with a version"
    if int(found[1]) < MIN_JAVA:
        return f"{program} is Java {found[1]}; {MIN_JAVA} or newer is needed"
    return None


@functools.cache
def missing_spark() -> str | None:
    """Return why Spark cannot be used. None if it can."""
    for module in ("pyspark", "pyarrow"):
        if find_spec(module) is None:
            return f"{module} is not installed (the extra 'spark')"
    return missing_java()


@functools.cache
def missing_kerberos() -> str | None:
    """Return why logins by GSSAPI cannot be tested. None if they can."""
    if (program := missing_program()) is not None:
        return f"{program} of MIT Kerberos is not installed"
    if find_spec("gssapi") is None:
        return "gssapi is not installed (the extra 'gssapi')"
    return missing_java()
