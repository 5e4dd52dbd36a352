"""``kohort groups``: groups, their members and their lag, and changes of their offsets."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kohort.cli.common import _client, _settings
from kohort.cli.common._client import CommandError
from kohort.cli.common._numbers import above_zero
from kohort.cli.common._tables import duration, number, table, undo_text, wrapped
from kohort.cli.groups import _history
from kohort.errors import ErrorCode, GroupHasMembersError, OffsetsChangedError
from kohort.types import NamedTuple, escaped

if TYPE_CHECKING:
    from kohort import KafkaAdminClient, TopicPartition
    from kohort.admin import GroupLag, GroupListing, PartitionLag, ResetPlan

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

REFUSED, ABOVE = 3, 4
"""Exit statuses: the group does not allow the change, and a lag is above the limit."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_OF_MEMBERS = {ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
SHARE = "share"
WITH_LAG = ("classic", "consumer", SHARE)
"""Types of groups whose lag the brokers know."""
DESCRIPTION = """\
Without a name, list all groups with their lag. With a name, show the members of a group and its
partitions. Each partition has its owner, its lag in records and in time, and the reason why the
group does not move there.

`groups history G` shows who owned which partition when, and why that changed. It needs the right to
read the topic __consumer_offsets.

`groups reset G --to TARGET` shows a plan, and `--execute` carries it out. `groups delete G...`
deletes groups, and `groups delete-offsets G` the offsets of --topic or --partition. These need a
group without members. A share group has start offsets in their place. A reset creates a group that
does not exist as a consumer group, or with --type share as a share group.

`groups configure G` shows the settings of a group, which need not exist. `--config` and `--unset`
change them.

A limit of time for --fail-above does not fail for a record whose age is unknown, as in share
groups. Such groups are named on stderr. Use a number of records for them.

The exit status is 0, or 1 for an error and 2 for wrong arguments. It is 3 if the group has members
or its offsets changed, and 4 if a lag is above --fail-above.
"""


class Limit(NamedTuple):
    """Largest lag that is not a failure, in records or in seconds."""

    value: float
    is_seconds: bool


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "groups",
        help="show groups, members and lag, reset offsets, delete groups",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Otherwise argparse takes the -2h of --to for an option.
    parser._negative_number_matcher = re.compile(r"-\d")
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[history|reset|delete|delete-offsets|configure] G",
        help="names of groups, after the name of an action",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--state", action="append", metavar="STATE", help="list groups in this state (repeatable)"
    )
    parser.add_argument(
        "--type",
        action="append",
        metavar="TYPE",
        help="list groups of this type: classic, consumer, share or streams (repeatable). With "
        "`groups reset G`, share is the type of a group that does not exist yet",
    )
    parser.add_argument(
        "--fail-above",
        type=_limit,
        metavar="LAG",
        help="exit with 4 if a partition is behind by more records, or by more time such as 5m",
    )
    parser.add_argument(
        "--during",
        type=above_zero,
        metavar="SECONDS",
        help="look again after this time, to find owners that do not commit, or end --sample",
    )
    parser.add_argument(
        "--read-committed",
        action="store_true",
        help="end each log at its last stable offset, before open transactions",
    )
    _history.add_to(parser)
    change = parser.add_argument_group("changes")
    change.add_argument(
        "--to",
        metavar="TARGET",
        help="earliest, latest, OFFSET, +N, -N, a time ago such as -2h, a time with a zone, "
        "TOPIC:PARTITION=OFFSET,... or @FILE of --save",
    )
    change.add_argument(
        "--topic", action="append", metavar="TOPIC", help="all partitions of a topic (repeatable)"
    )
    change.add_argument(
        "--partition",
        action="append",
        type=_partition,
        metavar="TOPIC:N",
        help="one partition (repeatable)",
    )
    _settings.add_to(change, text="setting for `groups configure G`")
    change.add_argument(
        "--unset",
        action="append",
        default=[],
        metavar="NAME",
        help="setting that `groups configure G` returns to its default (repeatable)",
    )
    change.add_argument("--execute", action="store_true", help="carry the plan of a reset out")
    change.add_argument(
        "--save", metavar="FILE", help="save the plan, or with --execute its undo, for --to @FILE"
    )
    _client.add_to(parser, time_for="the requests")
    parser.set_defaults(run=partial(run, parser))


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Show or change groups. Return the exit status."""
    action, names = _show, options.words
    changes: dict[str, Callable[..., int]] = {
        "reset": _reset,
        "delete": _delete,
        "delete-offsets": _delete_offsets,
        "history": _history.run,
        "configure": _settings.configure,
    }
    if len(names) > 1 and names[0] in changes:
        action, names = changes[names[0]], names[1:]
    elif options.to is not None or options.execute or options.save:
        parser.error("--to, --execute and --save need `groups reset G`")
    if action is _reset and options.to is None:
        parser.error("groups reset needs --to")
    if action is _reset and options.type not in (None, [SHARE]):
        parser.error("groups reset takes --type share, for a share group that does not exist yet")
    if action is not _history.run and (
        options.since
        or options.until
        or options.sample
        or options.html
        or options.svg
        or options.arrow
    ):
        parser.error("--from, --until, --sample, --html, --svg and --arrow need `groups history G`")
    if options.sample and (options.since or options.until):
        parser.error("--sample shows the present. It takes --during, and no --from or --until")
    if action is not _settings.configure and (options.config or options.unset):
        parser.error("--config and --unset need `groups configure G`")
    settings = [*(name for name, _ in options.config), *options.unset]
    if len(set(settings)) < len(settings):
        parser.error("--config and --unset name a setting twice")
    if action in (_reset, _delete_offsets, _history.run, _settings.configure) and len(names) != 1:
        parser.error("name one group")
    if action is _delete_offsets and not (options.topic or options.partition):
        parser.error("groups delete-offsets needs --topic or --partition")
    return _client.run("groups", partial(_run, options, action, names))


def _run(options: argparse.Namespace, action: Callable[..., int], names: list[str]) -> int:
    try:
        with _client.admin_of(options) as admin:
            return action(options, admin, names)
    except (GroupHasMembersError, OffsetsChangedError) as error:
        print(f"kohort groups: {error}", file=sys.stderr)
        return REFUSED


# -- what groups do ---------------------------------------------------------------------------


def _show(options: argparse.Namespace, admin: KafkaAdminClient, names: list[str]) -> int:
    timeout_ms = options.timeout * 1000
    level: Any = "read_committed" if options.read_committed else "read_uncommitted"
    listed: list[GroupListing] = []
    if not names:
        found = admin.list_groups(options.state, options.type, timeout_ms).raise_errors()
        listed = list(found)
    wanted = names or [each.group_id for each in listed if each.type in WITH_LAG]
    before = None
    if options.during is not None:
        before = admin.group_lag(wanted, level, timeout_ms)
        time.sleep(options.during)
    lags = admin.group_lag(wanted, level, timeout_ms)
    if names and not lags:
        lags.raise_errors()
    groups = {
        name: _after(before[name], lag, options.during) if before and name in before else lag
        for name, lag in lags.items()
    }
    if options.json:
        print(json.dumps(_as_json(listed, groups, lags.errors), indent=1, default=str))
    elif names:
        print("\n\n".join(_shown(group) for group in groups.values()))
    else:
        print(_listed(listed, groups) if listed else f"no groups{_client.scope_of(options)}")
    texts = [f"{name}: {error}" for name, error in lags.errors.items()]
    texts += [f"{name}: {text}" for name, lag in groups.items() for text in errors_within(lag)]
    if names and options.fail_above is not None:
        texts += [
            f"{name}: the lag is unknown{_why_unknown(lag)}"
            for name, lag in groups.items()
            if lag.records is None and not lag.partitions.errors
        ]
    for text in texts:
        print(f"kohort groups: {escaped(text)}", file=sys.stderr)
    return _status(options.fail_above, groups) or int(bool(texts))


def _after(before: GroupLag, after: GroupLag, seconds: float) -> GroupLag:
    """Return a lag with the reasons that two looks give."""
    from kohort.admin import AdminResults, stuck_reason

    partitions = {
        tp: lag._replace(reason=stuck_reason(before.partitions.get(tp), lag, seconds))
        for tp, lag in after.partitions.items()
    }
    return after._replace(partitions=AdminResults(partitions, after.partitions.errors))


def errors_within(lag: GroupLag) -> Iterator[str]:
    """Yield the reasons why the lag of a group is not known in full."""
    for topic in sorted({tp.topic for tp, at in lag.partitions.items() if "no-read" in at.flags}):
        yield f"the age of records is unknown, because this user needs READ on topic {topic!r}"
    yield from map(str, lag.partitions.errors.values())


def _why_unknown(lag: GroupLag) -> str:
    """Return the end of a sentence on a group whose lag is known of no partition."""
    reasons = sorted({each.reason for each in lag.partitions.values()})
    if reasons:
        return f": {', '.join(reasons)}"
    return ", because the group has no offset of a topic that this user may describe"


def _status(limit: Limit | None, groups: dict[str, GroupLag]) -> int:
    """Return 4 if the lag of a partition is above the limit."""
    if limit is None:
        return 0
    lags = [each for group in groups.values() for each in group.partitions.values()]
    values = [each.seconds if limit.is_seconds else each.records for each in lags]
    for text in _unknown(groups) if limit.is_seconds else ():
        print(f"kohort groups: {escaped(text)}", file=sys.stderr)
    return ABOVE if any(each is not None and each > limit.value for each in values) else 0


def _unknown(groups: dict[str, GroupLag]) -> Iterator[str]:
    """Yield a sentence for each share group with records whose age is unknown."""
    for name, lag in groups.items():
        unknown = [each.records or 0 for each in lag.partitions.values() if each.seconds is None]
        if unknown and lag.group.type == SHARE:
            number_of = f"{sum(unknown):,}" if any(unknown) else "its"
            yield (
                f"{name}: the age of {number_of} records is unknown, because it is a share group. "
                "Give --fail-above a number of records"
            )


def _listed(listed: list[GroupListing], groups: dict[str, GroupLag]) -> str:
    rows = []
    for each in listed:
        lag = groups.get(each.group_id)
        rows.append(
            [
                escaped(each.group_id),
                each.type,
                each.state or "-",
                "-" if lag is None else number(len(lag.group.members)),
                number(None if lag is None else lag.records),
                duration(None if lag is None else lag.seconds),
            ]
        )
    return table(["GROUP", "TYPE", "STATE", "MEMBERS", "LAG", "BEHIND"], rows)


def _shown(lag: GroupLag) -> str:
    group = lag.group
    assignor = f", assignor {escaped(group.assignor)}" if group.assignor else ""
    parts = [
        wrapped(
            f"{escaped(group.group_id)}: {group.state}, {group.type} protocol{assignor}, "
            f"coordinator {group.coordinator}, lag {number(lag.records)}, "
            f"behind {duration(lag.seconds)}"
        )
    ]
    if group.members:
        rows = [
            [
                escaped(each.client_id),
                escaped(each.host),
                number(len(each.partitions)),
                escaped(each.member_id),
            ]
            for each in group.members
        ]
        parts.append(table(["CLIENT", "HOST", "PARTITIONS", "MEMBER"], rows))
    if lag.partitions:
        rows = [_row(tp, each) for tp, each in lag.partitions.items()]
        headings = _HEADINGS
        if group.type == SHARE:  # each partition belongs to all members that have it
            owner = headings.index("OWNER")
            headings = ("PARTITION", "START", *headings[2:owner], *headings[owner + 1 :])
            rows = [[*row[:owner], *row[owner + 1 :]] for row in rows]
        parts.append(table(headings, rows))
    elif not lag.partitions.errors:
        parts.append("The group has no offset of a topic that this user may describe.")
    return "\n\n".join(parts)


_HEADINGS: tuple[str, ...] = ("PARTITION", "COMMITTED", "END", "LAG", "BEHIND", "OWNER", "REASON")


def _row(tp: TopicPartition, lag: PartitionLag) -> list[str]:
    flags = f" ({', '.join(lag.flags)})" if lag.flags else ""
    return [
        f"{tp.topic}:{tp.partition}",
        number(lag.committed),
        number(lag.end),
        number(lag.records),
        duration(lag.seconds),
        "-" if lag.owner is None else escaped(lag.owner.client_id),
        lag.reason + flags,
    ]


def _as_json(
    listed: list[GroupListing], groups: dict[str, GroupLag], errors: Any
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for each in listed:
        if each.group_id not in groups:
            found.append({"group": each.group_id, "type": each.type, "state": each.state})
    for name, lag in groups.items():
        group = lag.group
        found.append(
            {
                "group": name,
                "type": group.type,
                "state": group.state,
                "protocol": group.protocol_type,
                "assignor": group.assignor,
                "coordinator": group.coordinator,
                "lag": lag.records,
                "seconds": lag.seconds,
                "members": [
                    {
                        "member": each.member_id,
                        "instance": each.group_instance_id,
                        "client": each.client_id,
                        "host": each.host,
                        "partitions": [f"{tp.topic}:{tp.partition}" for tp in each.partitions],
                    }
                    for each in group.members
                ],
                "partitions": [_lag_json(tp, each) for tp, each in lag.partitions.items()],
            }
        )
    return sorted(found, key=lambda each: str(each["group"]))


def _lag_json(tp: TopicPartition, lag: PartitionLag) -> dict[str, Any]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "committed": lag.committed,
        "start": lag.start,
        "end": lag.end,
        "lag": lag.records,
        "seconds": lag.seconds,
        "timestamp": lag.timestamp,
        "timestamp_type": lag.timestamp_type,
        "flags": list(lag.flags),
        "owner": None if lag.owner is None else lag.owner.client_id,
        "reason": lag.reason,
    }


# -- changes ----------------------------------------------------------------------------------


def _reset(options: argparse.Namespace, admin: KafkaAdminClient, names: list[str]) -> int:
    [group] = names
    target = _target(options.to)
    try:
        plan = admin.reset_group_offsets(
            group,
            target,
            topics=options.topic,
            partitions=options.partition,
            plan=True,
            new_type="share" if options.type else None,
            timeout_ms=options.timeout * 1000,
        )
    except ValueError as error:
        raise CommandError(str(error)) from error
    if not plan.steps:
        raise CommandError(
            f"group {group!r} has no offset of a topic that this user may describe. Name a --topic"
        )
    if not options.json:
        print(_planned(plan))
    if options.save:  # first, because a reset must not lose its way back
        kept = plan.undo if options.execute else plan
        Path(options.save).write_text(kept.to_json(), encoding="utf-8")
    if options.execute:
        admin.reset_group_offsets(group, plan, timeout_ms=options.timeout * 1000)
    if options.json:
        print(plan.to_json())
    elif options.execute:
        undo = _undo_commands(plan, options.save, is_share=plan.type == SHARE)
        print("\n".join(["", "The offsets are reset.", *undo]))
    else:
        print("\n" + wrapped(_next_step(plan)))
    return 0


def _target(text: str) -> Any:
    """Return a plan, offsets by partition, or the text."""
    from kohort.admin import ResetPlan

    if text.startswith("@"):
        try:
            return ResetPlan.from_json(Path(text[1:]).read_text(encoding="utf-8"))
        except ValueError as error:
            raise CommandError(str(error)) from error
    if "=" not in text:
        return text
    offsets = {}
    for part in text.split(","):
        place, _, offset = part.rpartition("=")
        if not offset.isdecimal():
            raise CommandError(f"--to has {part!r}, which is not TOPIC:PARTITION=OFFSET")
        try:
            offsets[_partition(place)] = int(offset)
        except argparse.ArgumentTypeError as error:
            raise CommandError(str(error)) from error
    return offsets


def _planned(plan: ResetPlan) -> str:
    rows = [
        [
            f"{step.partition.topic}:{step.partition.partition}",
            number(None if step.before is None else step.before.offset),
            number(None if step.after is None else step.after.offset),
            f"{step.start:,} to {step.end:,}",
            _effect(step.records) + (" (nearest end of the log)" if step.is_clamped else ""),
        ]
        for step in plan.steps
    ]
    return table(["PARTITION", "FROM", "TO", "LOG", "EFFECT"], rows)


def _effect(records: int | None) -> str:
    if records is None:
        return "new offset"
    if not records:
        return "unchanged"
    return f"{records:,} read again" if records > 0 else f"{-records:,} skipped"


def _next_step(plan: ResetPlan) -> str:
    if plan.type is None:
        return (
            f"This is a plan. Group {escaped(plan.group_id)!r} does not exist. --execute creates "
            "it as a consumer group, and --type share --execute as a share group."
        )
    if not plan.members:
        return "This is a plan. Add --execute to carry it out."
    clients = ", ".join(sorted({escaped(each.client_id) for each in plan.members}))
    return (
        "This is a plan. It cannot be carried out while the group has members. "
        f"Stop these clients first: {clients}"
    )


def _undo_commands(plan: ResetPlan, saved: str | None, *, is_share: bool) -> Iterator[str]:
    """Yield the commands for the way back."""
    if saved:
        yield undo_text("reset", plan.group_id, "--to", f"@{saved}", "--execute")
        return
    new = [step.partition for step in plan.steps if step.before is None]
    if new and is_share:
        yield _deletion(plan.group_id, new, is_share=True)  # of all partitions, so it comes first
    known = [step for step in plan.steps if step.before is not None]
    if known:
        offsets = ",".join(
            f"{step.partition.topic}:{step.partition.partition}={step.before.offset}"
            for step in known
            if step.before is not None
        )
        yield _way_back(plan.group_id, offsets, is_share=is_share)
    if new and not is_share:
        yield _deletion(plan.group_id, new, is_share=False)


def _way_back(group: str, offsets: str, *, is_share: bool) -> str:
    """Return the command that resets offsets, of the same type if the group is deleted first."""
    kind = ("--type", SHARE) if is_share else ()
    return undo_text("reset", group, *kind, "--to", offsets, "--execute")


def _deletion(group: str, partitions: list[TopicPartition], *, is_share: bool) -> str:
    """Return the command that deletes offsets. Those of a share group go by topics only."""
    if is_share:
        options = [("--topic", topic) for topic in dict.fromkeys(tp.topic for tp in partitions)]
    else:
        options = [("--partition", f"{topic}:{partition}") for topic, partition in partitions]
    return undo_text("delete-offsets", group, *(word for each in options for word in each))


def _is_share(admin: KafkaAdminClient, group: str, timeout_ms: float) -> bool:
    """True if a group exists and is a share group."""
    found = admin.describe_groups([group], timeout_ms)
    return group in found and found[group].type == SHARE


def _delete(options: argparse.Namespace, admin: KafkaAdminClient, names: list[str]) -> int:
    results = admin.delete_groups(names, options.timeout * 1000)
    return _report(options, "group", {name: name for name in names}, results)


def _delete_offsets(options: argparse.Namespace, admin: KafkaAdminClient, names: list[str]) -> int:
    from kohort import TopicPartition

    [group] = names
    if _is_share(admin, group, options.timeout * 1000):
        return _delete_starts(options, admin, group)
    chosen = set(options.partition or ())
    if options.topic:
        committed = admin.list_group_offsets(group, options.timeout * 1000)[group]
        chosen |= {tp for tp in committed if tp.topic in options.topic}
    if not chosen:
        admin.describe_topics(options.topic, options.timeout * 1000).raise_errors()
        raise CommandError(f"group {group!r} has no committed offset of these topics")
    shown = {tp: f"{tp.topic}:{tp.partition}" for tp in sorted(chosen)}
    results = admin.delete_group_offsets(group, list(shown), options.timeout * 1000)
    assert all(isinstance(tp, TopicPartition) for tp in shown)
    return _report(options, "offset", shown, results)


def _delete_starts(options: argparse.Namespace, admin: KafkaAdminClient, group: str) -> int:
    """Delete the start offsets of topics from a share group, and print the way back."""
    timeout_ms = options.timeout * 1000
    if options.partition:
        raise CommandError("a share group loses the offsets of whole topics. Use --topic")
    topics: list[str] = list(dict.fromkeys(options.topic))
    before = admin.list_share_group_offsets(group, timeout_ms)[group]
    results = admin.delete_share_group_offsets(group, topics, timeout_ms)
    starts = {
        f"{tp.topic}:{tp.partition}": at.start
        for tp, at in before.items()
        if tp.topic in results and at.start is not None
    }
    shown = {topic: topic for topic in topics}
    status = _report(options, "offsets of", shown, results, {"before": starts})
    if starts and not options.json:
        target = ",".join(f"{place}={start}" for place, start in starts.items())
        print(_way_back(group, target, is_share=True))
    return status


def _report(
    options: argparse.Namespace,
    what: str,
    names: dict[Any, str],
    results: Any,
    more: Mapping[str, object] = MappingProxyType({}),
) -> int:
    """Print the result of each resource. Return 1 if one failed, or 3 if only members refuse."""
    if options.json:
        found = {
            text: str(results.errors[key]) if key in results.errors else None
            for key, text in names.items()
        }
        print(json.dumps({"deleted": found, **more}, indent=1))
    for key, text in names.items():
        if key in results.errors:
            print(f"kohort groups: {results.errors[key]}", file=sys.stderr)
        elif not options.json:
            print(f"{what} {text} deleted")
    codes = {getattr(each, "code", None) for each in results.errors.values()}
    return REFUSED if codes and codes <= _OF_MEMBERS else int(bool(codes))


# -- arguments --------------------------------------------------------------------------------


def _limit(text: str) -> Limit:
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)([smhd]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of records nor a time")
    value, unit = float(match[1]), match[2]
    return Limit(value * _UNITS.get(unit, 1), bool(unit))


def _partition(text: str) -> TopicPartition:
    from kohort import TopicPartition

    topic, colon, partition = text.rpartition(":")
    if not colon or not topic or not partition.isdecimal() or len(partition) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not TOPIC:PARTITION")
    return TopicPartition(topic, int(partition))
