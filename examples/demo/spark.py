"""Requirements of Spark in the demo."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_AT_LEAST = 17


def missing_requirement() -> str | None:
    """Return a line that says what Spark needs, or None if nothing is missing."""
    if any(importlib.util.find_spec(name) is None for name in ("pyspark", "pyarrow")):
        return "Spark is left out: PySpark is not installed. pip install 'kohort[spark]'"
    java = java_version()
    if java is None:
        return (
            f"Spark is left out: no Java found. Install Java {JAVA_AT_LEAST} or newer (such as "
            f"the package openjdk-{JAVA_AT_LEAST}-jre-headless), or set JAVA_HOME"
        )
    if java < JAVA_AT_LEAST:
        return (
            f"Spark is left out: Java {java} is too old. Install Java {JAVA_AT_LEAST} or newer, "
            "or set JAVA_HOME to one"
        )
    return None


def java_version() -> int | None:
    """Return the major version of the Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        return None
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        ).stderr
    except OSError:
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if match is None:
        return None
    # Java 8 and older report 1.8, 1.7 and so on.
    return int(match[2] if match[1] == "1" and match[2] else match[1])
