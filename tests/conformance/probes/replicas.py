"""Elections of leaders, reassignments of replicas, and log directories."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session

TIMEOUT_MS = 10_000
NODE = 1
PREFERRED, ANY = 0, 1
Move = tuple[int, Sequence[int] | None]


@probe("3")
def elect_leaders(session: Session) -> Observations:
    """Elect leaders of both kinds: without need, of unknown partitions, and of all."""
    name = session.topic(partitions=2)
    Asked = ElectLeadersRequest.TopicPartitions
    for version, kind in ((0, PREFERRED), (1, PREFERRED), (1, ANY), (2, PREFERRED), (2, ANY)):
        for label, wanted in (
            ("not needed", [Asked(topic=name, partitions=[1, 0])]),
            ("unknown topic", [Asked(topic=session.name("none"), partitions=[0, 1])]),
            ("unknown partition", [Asked(topic=name, partitions=[9, -1])]),
            ("invalid name", [Asked(topic="bad topic!", partitions=[0])]),
            ("twice", [Asked(topic=name, partitions=[0, 0]), Asked(topic=name, partitions=[0])]),
            ("no partitions", [Asked(topic=name)]),
            ("none", []),
        ):
            request = ElectLeadersRequest(
                election_type=kind, topic_partitions=wanted, timeout_ms=TIMEOUT_MS
            )
            yield f"{label}, {kind} in {version}", session.ask(request, version)
        everything = session.ask(
            ElectLeadersRequest(election_type=kind, topic_partitions=None, timeout_ms=TIMEOUT_MS),
            version,
        )
        found = everything.replica_election_results
        yield (
            f"all, {kind} in {version}",
            (
                everything.error_code,
                [result for result in found if result.topic == name],
                any(result.partition_result for result in found),
            ),
        )


@probe("3")
def elections_of_an_unknown_kind(session: Session) -> Observations:
    """Send election types that are neither preferred nor unclean."""
    name = session.topic()
    Asked = ElectLeadersRequest.TopicPartitions
    for version in (1, 2):
        for kind in (2, -1):
            for label, wanted in (
                ("one", [Asked(topic=name, partitions=[0])]),
                ("unknown", [Asked(topic=session.name("none"), partitions=[0])]),
                ("none", []),
                ("all", None),
            ):
                request = ElectLeadersRequest(
                    election_type=kind, topic_partitions=wanted, timeout_ms=TIMEOUT_MS
                )
                yield f"{label}, {kind} in {version}", session.ask(request, version)


def _reassign(
    session: Session, version: int, *topics: tuple[str, Sequence[Move]], may_resize: bool = True
) -> object:
    cls = AlterPartitionReassignmentsRequest
    return session.ask(
        cls(
            timeout_ms=TIMEOUT_MS,
            allow_replication_factor_change=may_resize,
            topics=[
                cls.ReassignableTopic(
                    name=name,
                    partitions=[
                        cls.ReassignablePartition(
                            partition_index=index,
                            replicas=None if replicas is None else list(replicas),
                        )
                        for index, replicas in moves
                    ],
                )
                for name, moves in topics
            ],
        ),
        version,
    )


@probe("3")
def reassign_partitions(session: Session) -> Observations:
    """Reassign replicas to their brokers, to invalid ones, and cancel reassignments."""
    name = session.topic(partitions=2)
    none = session.name("none")
    for version in (0, 1):
        for label, moves in (
            ("as they are", [(0, [NODE]), (1, [NODE])]),
            ("cancelled", [(0, None), (1, None)]),
            ("unknown broker", [(0, [99])]),
            ("negative broker", [(0, [-1])]),
            ("two brokers", [(0, [NODE, 99])]),
            ("twice the same", [(0, [NODE, NODE])]),
            ("no replicas", [(0, [])]),
            ("unknown partition", [(7, [NODE]), (-1, None)]),
            ("a partition twice", [(0, [NODE]), (0, [99])]),
            ("no partitions", []),
        ):
            yield f"{label} {version}", _reassign(session, version, (name, moves))
        moves = [(0, [NODE]), (1, None)]
        yield f"unknown topic {version}", _reassign(session, version, (none, moves))
        yield f"invalid name {version}", _reassign(session, version, ("bad topic!", moves))
        both = (name, moves), (none, moves), (name, moves)
        yield f"several topics {version}", _reassign(session, version, *both)
        yield f"no topics {version}", _reassign(session, version)
    for label, replicas in (("same size", [NODE]), ("other size", [NODE, 99]), ("empty", [])):
        answer = _reassign(session, 1, (name, [(0, replicas)]), may_resize=False)
        yield f"{label}, which must stay", answer
    Asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    wanted = [Asked(name=name, partition_indexes=[0, 1])]
    listed = ListPartitionReassignmentsRequest(topics=wanted, timeout_ms=TIMEOUT_MS)
    yield "nothing moves", session.ask(listed, 0)


@probe("3")
def move_replicas_to_directories(session: Session) -> Observations:
    """Move replicas to their directory, to unknown ones, and replicas that do not exist."""
    name, none = session.topic(partitions=2), session.name("none")
    here = session.ask(DescribeLogDirsRequest(topics=[]), 4).results[0].log_dir
    cls = AlterReplicaLogDirsRequest

    def move(version: int, *moves: tuple[str, str, Sequence[int]]) -> object:
        return session.ask(
            cls(
                dirs=[
                    cls.AlterReplicaLogDir(
                        path=path,
                        topics=[cls.AlterReplicaLogDirTopic(name=topic, partitions=list(indexes))],
                    )
                    for path, topic, indexes in moves
                ]
            ),
            version,
        )

    for version in (1, 2):
        for label, moves in (
            ("where they are", [(here, name, [0, 1])]),
            ("unknown directory", [("/no/such/place", name, [0, 1])]),
            ("no path", [("", name, [0])]),
            ("a part of a path", [("place", name, [0])]),
            ("unknown partition", [(here, name, [9, 0])]),
            ("unknown topic", [(here, none, [0])]),
            ("unknown directory and topic", [("/no/such/place", none, [0])]),
            ("invalid name", [(here, "bad topic!", [0])]),
            ("two directories", [(here, name, [0]), ("/no/such/place", name, [0])]),
            ("two directories, here last", [("/no/such/place", name, [0]), (here, name, [0])]),
            ("twice", [(here, name, [0, 0])]),
            ("no partitions", [(here, name, [])]),
            ("none", []),
        ):
            yield f"{label} {version}", move(version, *moves)
