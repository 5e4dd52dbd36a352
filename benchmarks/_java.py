"""Programs in Java that measurements run, next to this file."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.jars import jars, missing_kafka
from tests.support.needs import java


def missing_java_program() -> str | None:
    """Return why a program cannot be compiled and run, or None."""
    if _compiler() is None:
        return "there is no compiler for Java (javac)"
    return missing_kafka()


def java_program(name: str, folder: Path) -> list[str]:
    """Compile a program into ``folder``, and return the command that runs it."""
    path = f"{jars()}/*:{folder}"
    source = Path(__file__).with_name(f"{name}.java")
    subprocess.run([str(_compiler()), "-cp", path, "-d", str(folder), str(source)], check=True)
    return [str(java()), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", path, name]


def _compiler() -> Path | None:
    """Return the compiler of the Java that is run."""
    program = java()
    compiler = None if program is None else Path(program).resolve().with_name("javac")
    return compiler if compiler is not None and compiler.exists() else None
