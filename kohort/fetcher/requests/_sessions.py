"""Fetch sessions (KIP-227), in which the broker keeps the partitions and only changes are sent.

A session belongs to a connection. Its first request is a full one, with every partition, and the
response has the session id. Later requests contain only new, changed and removed partitions. Later
responses contain only partitions with news. After any error the next request is a full one again.
The broker then drops the old session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from kohort.config import FetchConfig
from kohort.errors import ErrorCode, KafkaError
from kohort.fetcher._environment import FetchCluster
from kohort.fetcher.requests._request import FetchRequestPlan, PartitionRequest, fetch_request
from kohort.logs import error_text, get_logger
from kohort.protocol import ZERO_UUID
from kohort.subscription import Watermarks
from kohort.transport import start_soon
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.protocol.messages import FetchResponse


logger = get_logger("kohort.fetcher")

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = (1 << 31) - 1

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""Error codes of a lost or inconsistent session. A full request starts a new one."""


class UpToDatePartitions(Mapping[TopicPartition, Watermarks]):
    """The partitions that a response leaves out, with their latest watermarks.

    It is a view, so its cost does not grow with the partitions of the session.
    """

    def __init__(
        self,
        watermarks: Mapping[TopicPartition, Watermarks],
        partitions: Collection[TopicPartition],
    ) -> None:
        self._watermarks = watermarks
        self._named = partitions

    def __getitem__(self, tp: TopicPartition) -> Watermarks:
        if tp in self._named:
            raise KeyError(tp)
        return self._watermarks[tp]

    def __contains__(self, tp: object) -> bool:
        return tp in self._watermarks and tp not in self._named

    def __iter__(self) -> Iterator[TopicPartition]:
        return (tp for tp in self._watermarks if tp not in self._named)

    def __len__(self) -> int:
        return sum(1 for _ in self)


NONE_UP_TO_DATE = UpToDatePartitions({}, ())


class FetchSession:
    """The session of one connection, with one request at a time.

    Each request begins with plan() or update(), and ends with note_response() or restart().
    :attr:`requests` keeps the partitions of the latest request. Therefore the cost of a request
    and its response grows only with their changes.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self.id = NO_SESSION
        self.requests: dict[TopicPartition, PartitionRequest] = {}
        """All partitions that the latest request fetches, also those that it does not name."""
        self.topic_names: dict[bytes, str] = {}
        """The topics of the requests by their ids."""
        self.responded_at: float | None = None
        self.has_news = False
        """True if the latest response had a watermark that differs from the one before."""
        self._epoch = INITIAL_EPOCH
        self._by_id = False
        self._without_topic_id = 0
        self._sizes: Counter[int] = Counter()
        self._watermarks: dict[TopicPartition, Watermarks] = {}
        self._former_watermarks: dict[TopicPartition, Watermarks] = {}
        self._unreported: dict[TopicPartition, None] = {}
        self._unconfirmed: dict[TopicPartition, None] = {}

    @property
    def is_incremental(self) -> bool:
        """True if the current or the next request contains only changes."""
        return self._epoch > INITIAL_EPOCH

    @property
    def sizes(self) -> Mapping[int, int]:
        """The number of partitions for each requested size."""
        return self._sizes

    def plan(self, requests: Sequence[PartitionRequest]) -> FetchRequestPlan:
        """Return the next request, so that exactly these partitions are fetched."""
        wanted = {request.topic_partition: request for request in requests}
        changes: dict[TopicPartition, PartitionRequest | None] = {
            tp: None for tp in self.requests if tp not in wanted
        }
        return self.update(changes | wanted)

    def update(self, changes: Mapping[TopicPartition, PartitionRequest | None]) -> FetchRequestPlan:
        """Return the next request after these changes. None removes a partition."""
        changed: list[PartitionRequest] = []
        forgotten: list[PartitionRequest] = []
        for tp, request in changes.items():
            known = self.requests.get(tp)
            if known == request:
                continue
            if request is not None and known is not None and known[3:] == request[3:]:
                self.requests[tp] = request  # another offset, or another epoch
                self._note_change(tp)
                if known.offset != request.offset:
                    changed.append(request)
                continue
            if known is not None:
                self._without_topic_id -= known.topic_id == ZERO_UUID
                self._count(known.max_bytes, -1)
            if request is None:
                assert known is not None
                del self.requests[tp]
                self._unreported.pop(tp, None)
                self._unconfirmed.pop(tp, None)
                forgotten.append(known)
                continue
            self.requests[tp] = request
            self.topic_names[request.topic_id] = tp.topic
            self._without_topic_id += request.topic_id == ZERO_UUID
            self._count(request.max_bytes, 1)
            self._note_change(tp)
            if known is None or not _is_same_request(known, request):
                changed.append(request)
            if known is not None and known.topic_id != request.topic_id:
                self.restart()  # another topic of the same name
        by_id = not self._without_topic_id
        if by_id != self._by_id:
            self.restart()
        self._by_id = by_id
        if not self._enabled or not self.is_incremental:
            self._former_watermarks, self._watermarks = self._watermarks, {}
            self.topic_names = {request.topic_id: tp.topic for tp, request in self.requests.items()}
            epoch = INITIAL_EPOCH if self._enabled else FINAL_EPOCH
            return FetchRequestPlan(list(self.requests.values()), (), self.id, epoch, by_id)
        for request in forgotten:
            self._watermarks.pop(request.topic_partition, None)
        return FetchRequestPlan(changed, forgotten, self.id, self._epoch, by_id)

    def _note_change(self, tp: TopicPartition) -> None:
        self._unreported[tp] = self._unconfirmed[tp] = None

    def _count(self, size: int, by: int) -> None:
        self._sizes[size] += by
        if not self._sizes[size]:
            del self._sizes[size]

    def note_response(
        self,
        session_id: int,
        partitions: Mapping[TopicPartition, FetchResponse.PartitionData],
        at: float = 0.0,
    ) -> UpToDatePartitions:
        """Note a response without a top-level error, and the partitions in it.

        Returns the partitions that it leaves out because they have no news, with their latest
        watermarks.
        """
        self.responded_at = at
        self.has_news = False
        known, former = self._watermarks, self._former_watermarks
        for tp, data in partitions.items():
            if data.error_code:
                known.pop(tp, None)
            else:
                # The class itself would be a call of Python.
                fields = data.high_watermark, data.last_stable_offset, data.log_start_offset
                watermarks = tuple.__new__(Watermarks, fields)
                if known.get(tp) != watermarks and former.get(tp) != watermarks:
                    self.has_news = True
                known[tp] = watermarks
        self._former_watermarks = {}
        if not self._enabled:
            return NONE_UP_TO_DATE
        if not self.is_incremental:
            self.id = session_id
            is_full = len(partitions) == len(self.requests)
            self._epoch = 1 if is_full and self.id != NO_SESSION else INITIAL_EPOCH
            return NONE_UP_TO_DATE
        if session_id != self.id:
            # The broker has closed the session: all partitions were removed, or memory is short.
            self.id, self._epoch = session_id, INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return UpToDatePartitions(self._watermarks, partitions)

    def newly_up_to_date(
        self,
        up_to_date: UpToDatePartitions,
        partitions: Collection[TopicPartition],
        *,
        had_room: bool,
    ) -> dict[TopicPartition, Watermarks]:
        """Return the up-to-date partitions that changed or had news since the latest call.

        The other ones were returned before. A full response may leave out partitions with records.
        Therefore the first response with room for more (``had_room``) returns a partition again. A
        full response costs nothing for the partitions that earlier ones left out.
        """
        left = [tp for tp in self._unreported if tp not in partitions]
        due = {tp: up_to_date[tp] for tp in left if tp in up_to_date}
        self._unreported = dict.fromkeys([tp for tp in left if tp not in due])
        if had_room:
            left = [tp for tp in self._unconfirmed if tp not in partitions]
            due |= {tp: up_to_date[tp] for tp in left if tp in up_to_date}
            self._unconfirmed = dict.fromkeys([tp for tp in left if tp not in due])
        changed = dict.fromkeys(partitions)
        self._unreported.update(changed)
        self._unconfirmed.update(changed)
        return due

    def fetched_at(self, tp: TopicPartition) -> float | None:
        """Return the time of the latest response, or None if the session lacks the partition."""
        return self.responded_at if tp in self._watermarks else None

    def close(self) -> FetchRequestPlan | None:
        """Return the request that closes the session at the broker, or None without a session."""
        if self.id == NO_SESSION:
            return None
        plan = FetchRequestPlan((), (), self.id, FINAL_EPOCH, self._by_id)
        self.id, self._epoch = NO_SESSION, INITIAL_EPOCH
        return plan

    def restart(self, code: int = 0) -> None:
        """Start a new session with the next request, because the broker's state is unknown."""
        self._epoch = INITIAL_EPOCH
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.id = NO_SESSION


def _is_same_request(known: PartitionRequest, request: PartitionRequest) -> bool:
    # The broker does not get the partition's epoch.
    return known[2:] == request[2:]


async def end_sessions(
    cluster: FetchCluster,
    config: FetchConfig,
    plans: Iterable[tuple[int, FetchRequestPlan]],
    timeout: float,
) -> None:
    """Send each broker the end of its session within ``timeout`` seconds; never raises."""

    async def end(node: int, plan: FetchRequestPlan) -> None:
        try:
            await cluster.request(
                fetch_request(config, plan, 0, 0), node=node, max_version=plan.max_version
            )
        except KafkaError as error:
            logger.debug("closing a fetch session at broker %d failed: %s", node, error_text(error))

    with anyio.move_on_after(timeout):
        async with anyio.create_task_group() as tasks:
            for node, plan in plans:
                start_soon(tasks, end, node, plan)
