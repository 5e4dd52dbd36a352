"""Each error code that a broker may answer with, in each API that the client uses: what follows.

``python -m tests.consumer.error_matrix docs/reference/error-codes.md`` writes the tables.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio

from kohort.errors import (
    BrokerResponseError,
    CommitFailedError,
    CorruptBatchError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    error_class,
    error_name,
)
from kohort.protocol import Response
from kohort.testing import Call, Fault, MemoryCluster
from kohort.types import TopicPartition
from tests.consumer.kit import Recorder
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import run_virtual

UNKNOWN = 9999
"""A code that no version of Kafka has given a meaning yet."""
CODES: tuple[int, ...] = (*(int(code) for code in ErrorCode if code), UNKNOWN)
AT_START = (
    "ApiVersions",
    "Metadata",
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "OffsetFetch",
    "ListOffsets",
    "DescribeGroups",
    "ConsumerGroupHeartbeat to join",
    "OffsetFetch of a consumer group",
)
"""APIs that a member uses before it has partitions and positions."""
CONSUMER_HEARTBEAT = "ConsumerGroupHeartbeat"
"""The API of consumer groups. It has tables for the join, later heartbeats and the last one."""
APIS = (
    *AT_START,
    "Fetch",
    "OffsetForLeaderEpoch",
    "Heartbeat",
    CONSUMER_HEARTBEAT,
    "OffsetCommit",
    "OffsetCommit of a consumer group",
    "LeaveGroup",
    "ConsumerGroupHeartbeat to leave",
)
AT_END = ("LeaveGroup", "ConsumerGroupHeartbeat to leave")
OF_BOTH_PROTOCOLS = (
    "ApiVersions",
    "Metadata",
    "FindCoordinator",
    "ListOffsets",
    "Fetch",
    "OffsetForLeaderEpoch",
)
"""APIs without a table for each protocol. The tables have the outcomes of a classic group."""
CONSUMER_GROUPS = (CONSUMER_HEARTBEAT, *(api for api in APIS if " of a " in api or " to " in api))

RETRIED_CODES: tuple[int, ...] = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""Codes with one outcome in most APIs. The tables name them together."""

BROKERS = {"OffsetForLeaderEpoch": 2}
"""Positions are validated when the leader has changed, so there have to be two."""
GROUPS = {
    "consumer_session_timeout_ms": 6_000,
    "consumer_heartbeat_interval_ms": 1_000,
    "consumer_assignment_interval_ms": 0,
}
WINDOW = 8.0
"""Seconds that the error is answered for: longer than a request's timeout and than the session."""
TIMEOUT = 5.0
TOO_MANY = 300
"""Requests in that time: whoever sends as many spins."""
T0 = TopicPartition("t", 0)

RESETS = "counts as no committed offset, so `auto_offset_reset` applies"
PASSES = "makes no difference"
RETRIED = "retried until the error ends, without an exception"
REJOINS = "the partitions are lost and the consumer rejoins, without an exception"


class Cell:
    """One code in one API, while a consumer begins, works and ends."""

    def __init__(self, cluster: MemoryCluster, api: str, code: int, protocol: str) -> None:
        self.cluster = cluster
        self.api = api
        self.code = code
        self.listener = Recorder()
        self.hits = 0
        self.raised: list[KafkaError] = []
        self.offsets: list[int] = []
        """Offsets of the records that the consumer returned."""
        group: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
        if api in CONSUMER_GROUPS or protocol == "consumer":
            group = {"group_protocol": "consumer"}
        elif api == "DescribeGroups":
            group = {"group_protocol": "auto"}
        self.consumer = MemoryConsumer(
            cluster,
            request_timeout_ms=1000 * TIMEOUT,
            **group,
            enable_auto_commit=False,
            metadata_max_age_ms=5_000,
        )

    async def run(self) -> str:
        """Return what followed. Fail after a hang, a spin, an untyped error or no recovery."""
        async with self.consumer:
            if self.api.startswith("OffsetFetch"):  # before the member has the partition
                self.cluster.produce("t", ["b"])
                await self.consumer.commit({T0: 1})
            fault = self._inject() if self.api in AT_START else None
            self.consumer.subscribe(["t"], listener=self.listener)
            if fault is None:
                assert await self._poll(10) == 1
                fault = self._inject()
            if self.api == "OffsetForLeaderEpoch":
                self.cluster.move_leader("t")
            await self._meet()
            hits = fault.hits
            assert 0 < hits < TOO_MANY, f"{hits} requests in {WINDOW} s"
            fault.stop()
            outcome = self._outcome(hits)
            if self.api not in AT_END:
                outcome += await self._recover()
        with anyio.fail_after(10):
            await self.cluster.wait_until(lambda: not self.cluster.group("g").members)
        return outcome

    def _inject(self) -> Fault:
        async def answer(call: Call) -> Response:
            self.hits += 1
            if self.hits > TOO_MANY:
                await anyio.sleep(WINDOW)  # or time would stand still while it spins
            return call.error(self.code)  # type: ignore[arg-type]  # one is not known to anybody

        return self.cluster.on(self.api.split()[0], answer)

    async def _meet(self) -> None:
        """Do what asks the API, or poll while it is asked."""
        begun = anyio.current_time()
        if self.api in AT_END:
            await self.consumer.close()
            assert anyio.current_time() - begun <= 5.0
        elif self.api.startswith("OffsetCommit"):
            try:
                await self.consumer.commit({T0: 1})
            except KafkaError as error:
                self.raised.append(error)
            assert anyio.current_time() - begun <= TIMEOUT + 0.1
        else:
            await self._poll(WINDOW)

    async def _poll(self, seconds: float, *, until_some: bool = False) -> int:
        end = anyio.current_time() + seconds
        count = 0
        while (left := end - anyio.current_time()) > 0 and not (until_some and count):
            try:
                polled = await self.consumer.poll(timeout_ms=1000 * min(left, 1.0))
                self.offsets += [record.offset for part in polled.values() for record in part]
                count += sum(map(len, polled.values()))
            except KafkaError as error:
                self.raised.append(error)
                await anyio.sleep(0.05)
        return count

    def _outcome(self, hits: int) -> str:
        kinds = sorted({self._kind(error) for error in self.raised})
        if kinds:
            lost = ", and the partitions are lost" if "lost" in self.listener.names else ""
            return f"raises {' or '.join(kinds)}{lost}"
        if "lost" in self.listener.names:
            return REJOINS
        if self.api.startswith("OffsetFetch") and 0 in self.offsets:
            return RESETS
        # A consumer group gets the last heartbeat once more after an error that lasts.
        sent = 2 if self.api == "ConsumerGroupHeartbeat to leave" else 1
        return RETRIED if hits > sent else PASSES

    def _kind(self, error: KafkaError) -> str:
        """Return the name of the error in the docs. It must be the error of the code."""
        name = f"`{type(error).__name__}`"
        if isinstance(error, BrokerResponseError) and error.code == self.code:
            assert type(error) is error_class(self.code)
            return "its own error"
        if isinstance(error, KafkaTimeoutError):
            assert error_name(self.code) in str(error), error
            return name
        known = (CommitFailedError, CorruptBatchError, NoBrokersAvailable)
        assert isinstance(error, (*known, BrokerResponseError)), repr(error)
        return name

    async def _recover(self) -> str:
        """Poll until records return again, at once or after the caller did its part."""
        self.cluster.produce("t", ["z"])
        if await self._poll(20, until_some=True):
            return ""
        if T0 in self.consumer.assignment():
            self.consumer.seek(T0, 1)
            assert await self._poll(20, until_some=True), self.raised
            return ", until seek()"
        self.consumer.subscribe(["t"], listener=self.listener)
        assert await self._poll(20, until_some=True), self.raised
        return ", and polling stops until subscribe()"


def outcome(api: str, code: int, protocol: str = "") -> str:
    """Measure one cell. The API decides the group protocol, unless there is one."""

    async def main() -> str:
        async with MemoryCluster(
            brokers=BROKERS.get(api, 1), topics={"t": 1}, group_settings=GROUPS
        ) as cluster:
            cluster.produce("t", ["a"])
            return await Cell(cluster, api, code, protocol).run()

    return run_virtual(main)


# -- the page --------------------------------------------------------------------------------------

_BEGIN = "<!-- tables: python -m tests.consumer.error_matrix docs/reference/error-codes.md -->"
_END = "<!-- end of tables -->"


def name_of(code: int) -> str:
    return "a code that is not known" if code == UNKNOWN else error_name(code)


def tables(measured: dict[str, dict[int, str]]) -> str:
    """API -> code -> outcome, as Markdown: a table an API, the codes with one outcome together."""
    codes = textwrap.wrap(", ".join(map(name_of, RETRIED_CODES)), 98, break_long_words=False)
    head = ["The tables call these codes *retried codes*:", "", "```text", *codes, "```", ""]
    lines = (line for api, codes in measured.items() for line in _table(api, codes))
    return "\n".join([*head, *lines])


def _names(codes: list[int]) -> str:
    """Return the names of the codes, with "retried codes" for all of ``RETRIED_CODES``."""
    if not set(RETRIED_CODES) <= set(codes):
        return ", ".join(map(name_of, codes))
    others = (name_of(code) for code in codes if code not in RETRIED_CODES)
    return ", ".join(["retried codes", *others])


def _table(api: str, codes: dict[int, str]) -> Iterator[str]:
    by_outcome: dict[str, list[int]] = defaultdict(list)
    for code, follows in codes.items():
        by_outcome[follows].append(code)
    common = max(by_outcome, key=lambda follows: len(by_outcome[follows]))
    yield f"### {api}\n"
    yield "| error code | result |\n| --- | --- |"
    for follows in sorted(by_outcome, key=lambda each: (each == common, each)):
        names = "all others" if follows == common else _names(by_outcome[follows])
        yield f"| {names} | {follows} |"
    yield ""


def read_tables(page: str) -> dict[str, dict[int, str]]:
    """What the page says: API -> code -> outcome."""
    said: dict[str, dict[int, str]] = {}
    codes = {name_of(code): code for code in CODES}
    body = page.partition(_BEGIN)[2].partition(_END)[0]
    for section in re.split(r"^### ", body, flags=re.MULTILINE)[1:]:
        api, _, rest = section.partition("\n")
        rows = re.findall(r"^\| (.+) \| (.+) \|$", rest, re.MULTILINE)[2:]
        special = {
            code: follows
            for names, follows in rows
            if names != "all others"
            for name in names.split(", ")
            for code in (RETRIED_CODES if name == "retried codes" else (codes[name],))
        }
        (others,) = [follows for names, follows in rows if names == "all others"]
        said[api] = {code: special.get(code, others) for code in CODES}
    return said


def main(path: Path) -> None:
    """Measure everything, which takes minutes, and write it into the page."""
    measured = {api: {code: outcome(api, code) for code in CODES} for api in APIS}
    head, _, rest = path.read_text(encoding="utf-8").partition(_BEGIN)
    tail = rest.partition(_END)[2]
    path.write_text(f"{head}{_BEGIN}\n\n{tables(measured)}\n{_END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
