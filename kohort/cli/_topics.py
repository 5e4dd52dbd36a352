"""``kohort topics``: topics with their partitions, and their creation and deletion."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kohort.cli.common import _client, _settings
from kohort.cli.common._numbers import whole_above_zero
from kohort.cli.common._tables import number, table

if TYPE_CHECKING:
    from kohort import KafkaAdminClient, TopicPartition
    from kohort.admin import AdminResults, TopicDescription

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    Bounds = dict[TopicPartition, tuple[int, int]]
    Configs = dict[str, dict[str, str | None]]

DESCRIPTION = """\
Without a name, list all topics with the number of their offsets. With a name, show the partitions
of a topic with leader, replicas and offsets, and the settings that differ from the defaults.

`topics create T...` creates topics and `topics delete T...` deletes them with all their records.
"""


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "topics",
        help="show, create and delete topics",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words", nargs="*", metavar="[create|delete] T", help="names of topics, after a change"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--internal", action="store_true", help="list internal topics, too")
    change = parser.add_argument_group("creation")
    change.add_argument(
        "--partitions", type=whole_above_zero, metavar="N", help="partitions (the brokers' default)"
    )
    change.add_argument(
        "--replicas", type=whole_above_zero, metavar="N", help="replicas (the brokers' default)"
    )
    _settings.add_to(change, text="setting such as retention.ms=3600000")
    _client.add_to(parser, time_for="the requests")
    parser.set_defaults(run=partial(run, parser))


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Show, create or delete topics. Return the exit status."""
    changes: dict[str, Callable[..., int]] = {"create": _create, "delete": _delete}
    action, names = _show, options.words
    if len(names) > 1 and names[0] in changes:
        action, names = changes[names[0]], names[1:]
    if action is not _create and (options.partitions or options.replicas or options.config):
        parser.error("--partitions, --replicas and --config need `topics create T`")
    return _client.run("topics", partial(_run, options, action, names))


def _run(options: argparse.Namespace, action: Callable[..., int], names: list[str]) -> int:
    with _client.admin_of(options) as admin:
        return action(options, admin, names)


def _show(options: argparse.Namespace, admin: KafkaAdminClient, names: list[str]) -> int:
    timeout_ms = options.timeout * 1000
    results = admin.describe_topics(names or None, timeout_ms)
    topics = [
        each for each in results.values() if names or options.internal or not each.is_internal
    ]
    offsets = _bounds(admin, topics, timeout_ms)
    settings = _configs(admin, [each.name for each in topics] if names else [], timeout_ms)
    bounds, configs = dict(offsets), dict(settings)  # without the errors, which come at the end
    if options.json:
        print(json.dumps([_as_json(each, bounds, configs) for each in topics], indent=1))
    elif topics and names:
        print("\n\n".join(_shown(each, bounds, configs) for each in topics))
    elif not names:
        print(_listed(topics, bounds) if topics else f"no topics{_client.scope_of(options)}")
    return max(_errors(results), _errors(offsets), _errors(settings))


def _bounds(
    admin: KafkaAdminClient, topics: list[TopicDescription], timeout_ms: float
) -> AdminResults[TopicPartition, tuple[int, int]]:
    """Return the first and the next offset of partitions that have a leader."""
    from kohort import TopicPartition
    from kohort.admin import AdminResults, OffsetSpec

    tps = [
        TopicPartition(topic.name, each.partition)
        for topic in topics
        for each in topic.partitions
        if each.leader is not None
    ]
    first = admin.list_partition_offsets(
        dict.fromkeys(tps, OffsetSpec.EARLIEST), timeout_ms=timeout_ms
    )
    last = admin.list_partition_offsets(
        dict.fromkeys(tps, OffsetSpec.LATEST), timeout_ms=timeout_ms
    )
    return AdminResults(
        {
            tp: (start.offset, end.offset)
            for tp in tps
            if tp in first and tp in last
            if (start := first[tp]) is not None and (end := last[tp]) is not None
        },
        {**first.errors, **last.errors},
    )


def _configs(
    admin: KafkaAdminClient, topics: list[str], timeout_ms: float
) -> AdminResults[str, dict[str, str | None]]:
    """Return the settings that topics have themselves."""
    from kohort.admin import AdminResults, ConfigResource

    if not topics:
        return AdminResults({}, {})
    found = admin.describe_configs([ConfigResource("topic", name) for name in topics], timeout_ms)
    return AdminResults(
        {
            each.name: {
                name: entry.value for name, entry in entries.items() if entry.source == "topic"
            }
            for each, entries in found.items()
        },
        {each.name: error for each, error in found.errors.items()},
    )


def _listed(topics: list[TopicDescription], bounds: Bounds) -> str:
    rows = [
        [
            topic.name,
            number(len(topic.partitions)),
            number(max((len(each.replicas) for each in topic.partitions), default=0)),
            number(_offsets(topic, bounds)),
            _health(topic),
        ]
        for topic in topics
    ]
    return table(["TOPIC", "PARTITIONS", "REPLICAS", "OFFSETS", "STATE"], rows)


def _offsets(topic: TopicDescription, bounds: Bounds) -> int:
    return sum(end - start for tp, (start, end) in bounds.items() if tp.topic == topic.name)


def _health(topic: TopicDescription) -> str:
    without = sum(each.leader is None for each in topic.partitions)
    behind = sum(len(each.isr) < len(each.replicas) for each in topic.partitions)
    if without:
        return f"{without} without a leader"
    return f"{behind} with replicas that are not in sync" if behind else "ok"


def _shown(topic: TopicDescription, bounds: Bounds, configs: Configs) -> str:
    from kohort import TopicPartition

    found = sorted(configs.get(topic.name, {}).items())
    settings = "".join(f"\n  {name}={value}" for name, value in found)
    rows = []
    for each in topic.partitions:
        start, end = bounds.get(TopicPartition(topic.name, each.partition), (None, None))
        rows.append(
            [
                str(each.partition),
                "-" if each.leader is None else str(each.leader),
                ",".join(map(str, each.replicas)),
                ",".join(map(str, each.isr)),
                number(start),
                number(end),
            ]
        )
    headings = ["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END"]
    return f"{topic.name}: {_health(topic)}{settings}\n\n{table(headings, rows)}"


def _as_json(topic: TopicDescription, bounds: Bounds, configs: Configs) -> dict[str, Any]:
    from kohort import TopicPartition

    partitions = []
    for each in topic.partitions:
        start, end = bounds.get(TopicPartition(topic.name, each.partition), (None, None))
        partitions.append(
            {
                "partition": each.partition,
                "leader": each.leader,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "start": start,
                "end": end,
            }
        )
    found: dict[str, Any] = {
        "topic": topic.name,
        "id": None if topic.topic_id is None else str(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": partitions,
    }
    return found | ({"configs": configs[topic.name]} if topic.name in configs else {})


def _create(options: argparse.Namespace, admin: KafkaAdminClient, names: list[str]) -> int:
    from kohort.admin import NewTopic

    new = NewTopic(options.partitions or -1, options.replicas or -1, dict(options.config))
    results = admin.create_topics(dict.fromkeys(names, new), timeout_ms=options.timeout * 1000)
    return _report(options, "created", names, results)


def _delete(options: argparse.Namespace, admin: KafkaAdminClient, names: list[str]) -> int:
    results = admin.delete_topics(names, options.timeout * 1000)
    return _report(options, "deleted", names, results)


def _report(options: argparse.Namespace, done: str, names: list[str], results: Any) -> int:
    """Print the result of each topic. Return 1 if one failed."""
    if options.json:
        found = {name: str(results.errors.get(name, "")) or None for name in names}
        print(json.dumps({done: found}, indent=1))
    else:
        for name in results:
            print(f"topic {name} {done}")
    return _errors(results)


def _errors(results: Any) -> int:
    for error in results.errors.values():
        print(f"kohort topics: {_client.text_of(error)}", file=sys.stderr)
    return int(bool(results.errors))
