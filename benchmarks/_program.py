"""Parts that the measurements share: arguments, brokers, processes and pages."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks._kafka import kafka
from benchmarks._machine import hardware, versions
from benchmarks._measured import Task
from tests.support.jars import KAFKA_VERSION, missing_kafka

ROOT = Path(__file__).parents[1]
LIMIT_S = 900.0
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "", "OPENBLAS_NUM_THREADS": "1"}
"""Variables of measured processes. Compiling would count as memory of a client, and numpy, which
pyarrow imports, would start threads that spin for a while.
"""


def parser(
    doc: str | None, *, rounds: int | None = None, servers: bool = False
) -> argparse.ArgumentParser:
    """Return a parser with the arguments that most measurements have."""
    found = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--output", type=Path, help="folder for the page, which is also printed")
    if rounds is not None:
        found.add_argument("--rounds", type=int, default=rounds, help=f"{rounds} by default")
    if servers:
        text = "measure on these instead of starting Apache Kafka"
        found.add_argument("--servers", help=text)
    return found


def words(text: str) -> list[str]:
    """Return the words between commas."""
    return [word.strip() for word in text.split(",")]


def numbers(text: str) -> list[int]:
    """Return the whole numbers between commas."""
    return [int(word) for word in text.split(",")]


def add_names(found: argparse.ArgumentParser, option: str, known: Collection[str]) -> None:
    """Add an option for some of the known names, separated by commas. The default is all."""

    def chosen(text: str) -> list[str]:
        names = words(text)
        if unknown := set(names).difference(known):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}")
        return names

    # argparse takes a % in a help text for a value.
    listed = ", ".join(known).replace("%", "%%")
    found.add_argument(option, type=chosen, default=list(known), help=f"some of {listed}")


@contextmanager
def brokers(servers: str | None = None) -> Iterator[str]:
    """Yield the bootstrap servers: those given, or a new node of Apache Kafka."""
    if servers is not None:
        yield servers
        return
    require_kafka()
    with kafka() as server:
        yield server.bootstrap_servers


def require_kafka() -> None:
    """Exit with the reason if Apache Kafka cannot run."""
    if (reason := missing_kafka()) is not None:
        raise SystemExit(f"not measured: {reason}")


def measured(task: Task) -> Any:
    """Measure consumers in a separate process."""
    return run("_measured", json.dumps(task._asdict()))


def new_group() -> str:
    """Return a new group's name."""
    return f"g-{uuid.uuid4().hex[:8]}"


class ProgramError(Exception):
    """A measured program failed, or did not end."""


def run(module: str, *arguments: object) -> Any:
    """Run a module of this package in a separate process. Return the JSON of its last line."""
    return run_command(command_of(module, *arguments))


def run_command(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
    """Run a program in the root of the project. Return the JSON of its last line."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ProgramError(f"{' '.join(command)} did not end") from error
    if done.returncode:
        raise ProgramError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def ready(command: Sequence[str]) -> Iterator[Iterator[str]]:
    """Run a program within the block, which begins when it prints "ready".

    Yield the lines that it prints afterwards.
    """
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
    ) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise ProgramError(f"{' '.join(command)} did not start")
            yield iter(process.stdout)
        finally:
            process.kill()


def command_of(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module of this package."""
    return [sys.executable, "-m", f"{__package__}.{module}", *map(str, arguments)]


def setting(
    *packages: str, cluster: str = f"Apache Kafka {KAFKA_VERSION}", go: bool = False
) -> str:
    """Return the machine and the versions of all programs."""
    found = "; ".join([hardware(), *versions(*packages, java=True, go=go)])
    return f"{found}; {cluster} on the same machine."


def about(doc: str | None) -> str:
    """Return the paragraph of a module's docstring that explains its figures."""
    return (doc or "").split("\n\n")[2]


def publish(output: Path | None, name: str, title: str, *parts: str) -> None:
    """Print a page of results, and write it into the folder ``output``."""
    text = "\n\n".join([f"# {title}", *filter(None, parts)])
    print(f"\n{text}")
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / f"{name}.md").write_text(f"{text.rstrip()}\n")
