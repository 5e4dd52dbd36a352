"""Supervisor that runs a command while its standard input is open.

The command line is ``python supervise.py COMMAND...``. A killed test run closes the pipe, whatever
killed it, and its broker ends with it. SIGTERM is passed on, so that the command can shut down
normally. SIGUSR1 stops the command as SIGSTOP does, and SIGUSR2 continues it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main(command: list[str]) -> int:
    """Run the command and return its exit status."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        signal.signal(signal.SIGUSR1, lambda *_: process.send_signal(signal.SIGSTOP))
        signal.signal(signal.SIGUSR2, lambda *_: process.send_signal(signal.SIGCONT))
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # Ctrl-C is for the test run, which then ends this process

        def watch() -> None:
            while os.read(0, 1):  # not sys.stdin: its lock would be held when this ends
                pass
            process.kill()

        threading.Thread(target=watch, daemon=True).start()
        return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
