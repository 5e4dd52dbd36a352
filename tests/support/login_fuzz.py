"""Mutated logins, by seed: responses of a hostile broker or identity provider.

    python -m tests.support.login_fuzz [--cases 500000] [--seconds 3000] [--seed 0] [--start 0]

Most cases open a connection to the in-process cluster over memory, with a mechanism of SASL. One or
more of the broker's responses are changed (``mutation.py``), cut off, or sent twice. Some cases
read the changed response of a token endpoint, others shake hands with a TLS server whose bytes are
changed. The clock is virtual, so nothing sleeps. The rules are:

* Only typed errors are raised.
* A login ends within its time limits.
* No case takes over a second of CPU time.
* No allocation is larger than 1 MB.

A failure prints the command that repeats the case.
"""

from __future__ import annotations

import argparse
import errno
import http.client
import logging
import os
import random
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
import trio.testing

from kohort.config import ConsumerConfig, Url
from kohort.errors import KafkaError, OAuthTokenError
from kohort.protocol import Buffer
from kohort.security import TlsContexts, mechanism_of
from kohort.security.oauth._http import HttpCall
from kohort.testing import MemoryCluster, Security
from kohort.transport import NETWORK_ERRORS, BrokerConnection, ByteConnection
from kohort.transport.cluster._tls_connector import AddressedServer, TlsConnector
from kohort.transport.network._tls import TlsConnection
from tests.support.certificates import Certificates
from tests.support.heap import Heap, Taken, environment
from tests.support.mutation import mutate
from tests.support.tls_server import server_context

MB = 1 << 20
ROOT = Path(__file__).parents[2]
LONGEST_S = 1.0
TIMEOUT_S = 10.0
LIMIT_S = 4 * TIMEOUT_S
"""Seconds of the virtual clock: connecting, the handshake and the login have separate limits."""
STEPS = 5
"""Responses of a broker in the longest login."""
IN_A_CLUSTER = 500
"""Cases that one cluster serves."""
WARM_UP = 100
REPORT = 20_000
HTTP, TLS = 0.1, 0.05
"""Shares of the cases that are responses of a token endpoint, and TLS handshakes."""
FLIGHTS = 6
"""Writes of a TLS server until its data is sent. The client reads the last of it in C."""
USER, PASSWORD = "alice", "alice-secret"
SASL: dict[str, dict[str, Any]] = {
    "PLAIN": {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD},
    "SCRAM-SHA-256": {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD},
    "SCRAM-SHA-512": {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD},
    "OAUTHBEARER": {
        "sasl_oauthbearer_unsecured": True,
        "sasl_oauthbearer_unsecured_claims": {"sub": USER},
    },
}
ENDPOINT = Url("https", "idp.test", 443, "/token", "")
BODY = b'{"access_token":"abc.def.ghi","token_type":"Bearer","expires_in":300}'
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)
) + BODY


class LoginFuzzFailure(Exception):
    """A login broke a rule. The message ends with the command that repeats the case."""


class HostileConnection:
    """Connection whose broker's responses are changed if their numbers are in ``wrong``."""

    def __init__(self, inner: ByteConnection, rng: random.Random, wrong: frozenset[int]) -> None:
        self._inner = inner
        self._rng = rng
        self._wrong = wrong
        self._answers = 0
        self._rest = memoryview(b"")
        self._scratch = bytearray(MB // 16)
        self._is_over = False

    async def recv_into(self, view: memoryview, /) -> int:
        """Receive the rest of a response, or the next one. The cluster sends one at a time."""
        while not self._rest:
            if self._is_over:
                return 0
            size = await self._inner.recv_into(memoryview(self._scratch))
            if not size:
                return 0
            answer = bytes(self._scratch[:size])
            if self._answers in self._wrong:
                answer = self._changed(answer)
            self._answers += 1
            self._rest = memoryview(answer)
        taken = min(len(view), len(self._rest))
        view[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        return taken

    def _changed(self, answer: bytes) -> bytes:
        match self._rng.randrange(8):
            case 0:
                self._is_over = True
                return answer[: self._rng.randrange(len(answer))]
            case 1:
                return answer + answer
            case 2:
                return mutate(answer, self._rng)
            case _:  # the length stays correct, so that the content is read
                content = mutate(answer[4:], self._rng, 4)
                return len(content).to_bytes(4, "big") + content

    async def send(self, buffers: Sequence[Buffer], /) -> None:
        """Send all of the buffers."""
        await self._inner.send(buffers)

    async def aclose(self) -> None:
        """Close both ends."""
        await self._inner.aclose()


async def log_in(cluster: MemoryCluster, rng: random.Random) -> str:
    """Open one connection and return the outcome."""
    name = rng.choice(list(SASL))
    host, _, port = cluster.bootstrap_servers_of("SASL_PLAINTEXT").rpartition(":")
    config = ConsumerConfig.from_kwargs(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism=name, **SASL[name]
    )
    wrong = frozenset(rng.sample(range(STEPS), rng.choice((1, 1, 1, 2))))

    async def connect(host: str, port: int) -> ByteConnection:
        return HostileConnection(await cluster.connect(host, port), rng, wrong)

    began = trio.current_time()
    try:
        connection = await BrokerConnection.open(
            connect,
            host,
            int(port),
            timeout=TIMEOUT_S,
            mechanism=mechanism_of(config.security),
            rng=rng,
        )
    except KafkaError as error:
        outcome = type(error).__name__
    else:
        outcome = "logged in"
        connection.abort()
    took = trio.current_time() - began
    assert took <= LIMIT_S, f"the login took {took:.0f} s of the clock"
    return outcome


def ask_for_token(rng: random.Random) -> str:
    """Read one changed response of a token endpoint and return the outcome."""
    answer = mutate(ANSWER, rng, rng.choice((0, len(ANSWER) - len(BODY))))
    if rng.random() < 0.1:
        answer += rng.randbytes(100_000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        call = _CallOnSocket(ours)
        try:
            fields = call.run()
        except OAuthTokenError as error:
            return type(error).__name__
        assert isinstance(fields, dict)
        return "token endpoint answered"


class _CallOnSocket(HttpCall):
    """Call over a socket that is already connected."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(ENDPOINT, lambda: b"", dict, ssl.create_default_context)
        self._sock = sock

    def _make(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("idp.test")
        connect = partial(setattr, connection, "sock", self._sock)
        connection.connect = connect  # type: ignore[method-assign]
        return connection


async def _offline(host: str, port: int) -> ByteConnection:
    """Fail as a network that cannot be reached, for connections after a failed handshake."""
    raise ConnectionRefusedError(errno.ECONNREFUSED, "no network")


class TlsCase:
    """A TLS server in memory, and the client's settings."""

    def __init__(self, folder: Path) -> None:
        certificates = Certificates(folder)
        self._server = server_context(certificates)
        config = ConsumerConfig.from_kwargs(security_protocol="SSL", ssl_cafile=certificates.ca)
        self._connector = TlsConnector(config.client, TlsContexts(config.security), _offline)

    async def run(self, rng: random.Random) -> str:
        """Shake hands, receive some data and return the outcome."""
        wrong = frozenset(rng.sample(range(FLIGHTS), rng.choice((1, 1, 2))))
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        connection = TlsConnection(ours, AddressedServer(self._connector, "localhost", 9093))
        async with trio.open_nursery() as tasks:
            tasks.start_soon(self._serve, theirs, rng, wrong)
            try:
                await connection.handshake(TIMEOUT_S)
                with trio.move_on_after(TIMEOUT_S):
                    while await connection.recv_into(memoryview(bytearray(4096))):
                        pass
            except (KafkaError, *NETWORK_ERRORS) as error:
                outcome = f"TLS: {type(error).__name__}"
            else:
                outcome = "TLS: received"
            await connection.aclose()
            tasks.cancel_scope.cancel()
        theirs.close()
        return outcome

    async def _serve(self, sock: socket.socket, rng: random.Random, wrong: frozenset[int]) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._server.wrap_bio(incoming, outgoing, server_side=True)
        flights = 0
        is_shaken = False
        try:
            while True:
                try:
                    if is_shaken:
                        tls.write(rng.randbytes(rng.randrange(1, 20_000)))
                    else:
                        tls.do_handshake()
                        is_shaken = True
                except ssl.SSLWantReadError:
                    pass
                if data := outgoing.read():
                    sock.send(mutate(data, rng) if flights in wrong else data)
                    flights += 1
                if flights > FLIGHTS:
                    return sock.shutdown(socket.SHUT_WR)
                if not is_shaken:
                    await trio.lowlevel.wait_readable(sock)
                    incoming.write(sock.recv(1 << 16))
        except OSError:
            sock.shutdown(socket.SHUT_WR)


class _Bugs(logging.Handler):
    """Log handler that keeps the transport's errors, because bugs become typed errors, too."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


@contextmanager
def _watched_log() -> Iterator[_Bugs]:
    """Watch the log of the client. A cluster logs why it closes a connection."""
    bugs, logger = _Bugs(), logging.getLogger("kohort")
    testing = logging.getLogger("kohort.testing")
    before = testing.disabled
    logger.addHandler(bugs)
    testing.disabled = True
    try:
        yield bugs
    finally:
        logger.removeHandler(bugs)
        testing.disabled = before


class Tally:
    """Results of the cases, and the longest time that one took."""

    def __init__(self) -> None:
        self.cases = 0
        self.outcomes: Counter[str] = Counter()
        self.seconds = 0.0
        self.largest = 0


async def _some(
    numbers: range, seed: int, heap: Heap, tally: Tally, longest_s: float, tls: TlsCase
) -> None:
    """Run the cases of one cluster."""
    security = Security(listeners=("SASL_PLAINTEXT",), users={USER: PASSWORD})
    with _watched_log() as bugs:
        async with MemoryCluster(security=security) as cluster:
            for number in numbers:
                rng = random.Random(f"{seed} {number}")
                began = time.thread_time()
                heap.begin()
                try:
                    if (kind := rng.random()) < HTTP:
                        outcome = ask_for_token(rng)
                    elif kind < HTTP + TLS:
                        outcome = await tls.run(rng)
                    else:
                        outcome = await log_in(cluster, rng)
                    taken, took = heap.end(), time.thread_time() - began
                    tally.largest = max(tally.largest, taken.largest)
                    tally.seconds = max(tally.seconds, took)
                    assert not bugs.found, bugs.found[0]
                    assert took <= longest_s, f"it took {took:.1f} s"
                    assert taken.largest <= MB, f"{taken.largest:,} bytes were allocated at once"
                except Exception as error:
                    again = f"--seed {seed} --start {number} --cases 1"
                    raise LoginFuzzFailure(
                        f"{error!r}\nagain: python -m tests.support.login_fuzz {again}"
                    ) from error
                tally.cases += 1
                tally.outcomes[outcome] += 1


class _Unwatched(Heap):
    """Seconds for cases that compile codecs and fill caches."""

    def end(self) -> Taken:
        return super().end()._replace(peak=0, largest=0)


def work(cases: int, *, seed: int, start: int, seconds: float, longest_s: float) -> Tally:
    """Run the cases in this process, as many as there is time for. Raise LoginFuzzFailure."""
    heap, tally = Heap(), Tally()
    clock = trio.testing.MockClock
    with tempfile.TemporaryDirectory() as folder:
        tls = TlsCase(Path(folder))
        warm_up = partial(_some, range(WARM_UP), -1, _Unwatched(), Tally(), 60.0, tls)
        trio.run(warm_up, clock=clock(autojump_threshold=0))
        deadline = time.monotonic() + seconds
        for first in range(start, start + cases, IN_A_CLUSTER):
            if time.monotonic() > deadline:
                break
            if (first - start) % REPORT == 0:
                print(f"seed {seed}, at case {first:,}", file=sys.stderr, flush=True)
            numbers = range(first, min(first + IN_A_CLUSTER, start + cases))
            some = partial(_some, numbers, seed, heap, tally, longest_s, tls)
            trio.run(some, clock=clock(autojump_threshold=0))
        return tally


def run(cases: int, *, seed: int = 0, start: int = 0, seconds: float = 1e9) -> str:
    """Run the cases in a process whose memory is counted, and return its report.

    Raise LoginFuzzFailure at the first case that breaks a rule.
    """
    with tempfile.TemporaryDirectory() as folder:
        env = environment(Path(folder))
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
        options = {"cases": cases, "seed": seed, "start": start, "seconds": seconds}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "tests.support.login_fuzz", "--here", *words]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise LoginFuzzFailure(done.stdout or f"it ended with status {done.returncode}")
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status, which is 1 if a login broke a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.login_fuzz")
    parser.add_argument("--cases", "--requests", type=int, default=500_000)
    parser.add_argument("--seconds", type=float, default=3000.0, help="time limit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", "--first", type=int, default=0, help="number of the first case")
    parser.add_argument(
        "--longest", type=float, default=LONGEST_S, help="longest CPU time of a case in seconds"
    )
    parser.add_argument("--jobs", type=int, default=1, help=argparse.SUPPRESS)  # of the others
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    options = {"seed": args.seed, "start": args.start, "seconds": args.seconds}
    try:
        if not args.here:
            print(run(args.cases, **options))
            return 0
        began = time.monotonic()
        tally = work(args.cases, longest_s=args.longest, **options)
    except LoginFuzzFailure as failure:
        print(failure)
        return 1
    outcomes = ", ".join(f"{count:,} {name}" for name, count in tally.outcomes.most_common())
    print(
        f"{tally.cases:,} logins in {time.monotonic() - began:.0f} s, nothing went wrong: "
        f"{outcomes}; the slowest took {1000 * tally.seconds:.0f} ms, the largest allocation "
        f"{tally.largest:,} bytes"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
