"""Run the tests of the Spark source on other versions of Spark, ``make spark-versions``.

The versions of pyspark are installed below ``.cache``, each in its own environment. It finds all
other packages in the environment of this Python.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
VERSIONS: Final = ("4.0.5", "4.1.4", "4.2.1")
TESTS: Final = ("test_spark.py", "test_progress.py", "end_to_end")
WARNINGS: Final = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
"""pyspark 4.0 leaves sockets of its driver open."""


def environment(version: str) -> Path:
    """Return the Python of an environment with this version of pyspark. Create it if missing."""
    folder = ROOT / ".cache" / f"pyspark-{version}"
    python = folder / "bin" / "python"
    found = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    others = found / "others.pth"
    if not others.exists():
        venv.create(folder, clear=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", f"pyspark=={version}"]
        subprocess.run(install, check=True)
        others.write_text(sysconfig.get_path("purelib"))
    return python


def main(arguments: list[str]) -> int:
    """Run pytest for each version. Return the number of versions with failures."""
    failed = 0
    for version in VERSIONS:
        print(f"Spark {version}", flush=True)
        tests = [str(ROOT / "tests" / "spark_connector" / name) for name in TESTS]
        warnings = [word for each in WARNINGS for word in ("-W", each)]
        pytest = (str(environment(version)), "-m", "pytest", "-n", "0")
        command = [*pytest, *warnings, *tests, *arguments]
        failed += subprocess.run(command, cwd=ROOT, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
