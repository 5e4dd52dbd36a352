"""The result of explain(): why no records arrive and why the group rebalanced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from kohort.consumer.diagnosis._facts import (
    CommitFacts,
    DistantBrokerFacts,
    ExplanationFacts,
    GroupFacts,
    PartitionFacts,
    RightFacts,
    SecurityFacts,
    SlowLineFacts,
    SubscriptionFacts,
)
from kohort.consumer.diagnosis._share_texts import share_lines, share_reasons
from kohort.consumer.engine._open_transactions import offsets_wait
from kohort.transport import counted, escaped

_GROUPED = ("topics", "pattern", "broker pattern")
"""Modes of a subscription whose partitions a group assigns."""

MAX_REBALANCES = 5
"""Maximum number of rebalances in the text. The dict has all that the client keeps."""

EXPIRY_WARNING_DAYS = 7
"""Days before its expiry from which a client certificate is mentioned."""

LATE_SECONDS = 1.0
"""Seconds beyond its maximum wait after which a fetch counts as late."""

SLOW_SECONDS = 1.0
"""Seconds from the first to the last byte of a response after which the line counts as slow."""

_OPEN_STATES = {
    "joining": "the group protocol is not chosen yet, because {}",
}
"""Texts of states that mean something else before ``group_protocol="auto"`` has chosen."""

_CONSUMER_STATES = {
    "joining": "the first heartbeat is in flight, or the coordinator is not known yet",
}
"""Texts of states that mean something else under the consumer protocol."""

_STATES = {
    "unsubscribed": "this consumer is not a member of the group yet",
    "revoking": "a rebalance waits for the listener's on_partitions_revoked() or "
    "on_partitions_lost() to return",
    "joining": "JoinGroup is in flight: the coordinator waits for the other members to join, or "
    "the coordinator is not known yet",
    "assigning": "this member is the leader, and its assignor is running",
    "syncing": "SyncGroup is in flight: the leader has not sent the assignment yet",
    "reconciling": "the assignment was received, and the listener's callbacks are running",
    "acknowledging": "the coordinator is about to hear which partitions this member owns",
    "leaving": "this consumer is leaving the group",
}


class Explanation:
    """A snapshot of a consumer's state. ``str()`` returns it as text for people."""

    __module__ = "kohort"

    def __init__(self, facts: ExplanationFacts) -> None:
        self._facts = facts
        self.reasons: tuple[str, ...] = tuple(_reasons(facts))
        """The reasons why no records arrive, the first cause first; empty if there are none."""

    def as_dict(self) -> ExplanationFacts:
        """Return all values, with ``reasons``, as plain values that json.dumps() accepts."""
        return {**self._facts, "reasons": list(self.reasons)}

    def __repr__(self) -> str:
        return f"<Explanation: {'; '.join(self.reasons) or 'nothing prevents records'}>"

    def __str__(self) -> str:
        return "\n".join(_lines(self._facts, self.reasons))


def _reasons(facts: ExplanationFacts) -> Iterator[str]:
    state, cluster = facts["state"], facts["cluster"]
    if state == "not started":
        yield "not started: call poll(), or start() of an async consumer"
        return
    if state != "running":
        yield f"the consumer is {state}: create a new one"
        return
    yield from (f"poll() is about to raise {error}" for error in facts["poll"]["errors_waiting"])
    if facts["processing"] is not None:
        yield from facts["processing"]["stuck"]
        yield from facts["processing"]["waiting"]
        yield from facts["processing"]["letters"]
    yield from facts["security"]["refusals"]
    if facts["security"]["credentials_obstacle"] is not None:
        yield f"no login: {facts['security']['credentials_obstacle']}"
    if not cluster["reached"]:
        servers = ", ".join(cluster["bootstrap_servers"])
        last = "" if cluster["last_error"] is None else f": {cluster['last_error']}"
        yield f"no broker was reached yet; tried: {servers}{last}"
        return
    others = tuple(_reasons_after_contact(facts))
    for broker, failure in cluster["unreachable"].items():
        if not any(escaped(failure) in each for each in others):
            yield f"broker {broker}: {escaped(failure)}"
    yield from others


def _reasons_after_contact(facts: ExplanationFacts) -> Iterator[str]:
    yield from (escaped(_missing_right(right)) for right in facts["missing_rights"])
    yield from _subscription_reasons(facts["subscription"])
    group, grouped = facts["group"], facts["subscription"]["mode"] in _GROUPED
    if group is not None and grouped:
        yield from _group_reasons(facts, group)
    if group is not None and group["offset_read_failure"] is not None:
        yield f"the committed offsets cannot be read: {escaped(group['offset_read_failure'])}"
    if facts["partitions"]:
        max_wait = facts["cluster"]["fetch_max_wait_ms"] / 1000
        slow = facts["cluster"]["slow_lines"]
        yield from _slow_line_reasons(facts["partitions"], slow)
        distant = facts["cluster"]["distant_brokers"]
        yield from _distant_broker_reasons(facts["partitions"], distant)
        yield from _partition_reasons(facts["partitions"], max_wait, slow)
    yield from _created_topics(facts)


def _created_topics(facts: ExplanationFacts) -> Iterator[str]:
    """Yield a reason for each topic without records that may be a mistyped name."""
    for topic in facts["subscription"]["appeared_topics"]:
        parts = [part for part in facts["partitions"].values() if part["topic"] == topic]
        if parts and all(part["high_watermark"] == 0 for part in parts):
            yield (
                f"topic {escaped(topic)} has no records, and did not exist when this consumer "
                "requested it first: check the name. Brokers may have created it, because "
                "allow_auto_create_topics is True"
            )


def _certificate_reasons(security: SecurityFacts) -> Iterator[str]:
    days = security["certificate_expires_in_days"]
    if days is not None and days < EXPIRY_WARNING_DAYS:
        when = security["certificate_expires_at"]
        verb = "expired" if days < 0 else "expires"
        yield (f"the client certificate of {security['certificate_of']} {verb} on {when}")


def _missing_right(right: RightFacts) -> str:
    """Return a sentence such as ``bob needs READ on topic orders``."""
    who = right["principal"] or "this client"
    return f"{who} needs {right['operation']} on {right['resource']} {right['name']}"


def _subscription_reasons(subscription: SubscriptionFacts) -> Iterator[str]:
    mode, unknown = subscription["mode"], subscription["unknown_topics"]
    pattern = escaped(subscription["pattern"] or "")
    if mode == "none":
        yield "nothing is subscribed to or assigned: call subscribe() or assign()"
    elif mode == "pattern" and not subscription["topics"]:
        yield f"no topic matches the pattern {pattern}"
    elif mode == "broker pattern" and not subscription["topics"]:
        yield f"the brokers have assigned no topic for the pattern {pattern}, which is of RE2J"
    elif unknown:
        yield f"no such topic in the cluster metadata: {', '.join(unknown)}"


def _group_reasons(facts: ExplanationFacts, group: GroupFacts) -> Iterator[str]:
    poll, state = facts["poll"], group["state"]
    join_obstruction = (
        "" if group["join_obstruction"] is None else f": {escaped(group['join_obstruction'])}"
    )
    if group["coordinator"] is None and state != "unsubscribed":
        group_id = escaped(group["group_id"])
        yield f"the coordinator of group {group_id} is being looked for{join_obstruction}"
    elif state == "joining" and join_obstruction:
        yield f"the group cannot be joined yet{join_obstruction}"
    if group["session_in_doubt"]:
        yield (
            "no heartbeat got a response for as long as a session lasts. Another member may own "
            "the partitions, so no records are returned before a heartbeat succeeds"
        )
    ago = poll["last_seconds_ago"]
    if group["waits_for_poll"] and not poll["inside"]:
        since = "" if ago is None else f", which was last called {ago:.1f} s ago"
        yield f"a rebalance waits for poll(){since}: {group['rebalance_reason']}"
    elif state in _STATES:
        text = _texts(group).get(state, _STATES[state])
        text = text.format(escaped(group["group_protocol_reason"]))
        yield f"{text} (reason: {group['rebalance_reason']})"
    elif state == "failed":
        fenced = "was fenced, call subscribe() to join again"
        then = fenced if group["fenced"] else "failed, and poll() joins again"
        yield f"the membership {then}: {group['last_failure']}"
    elif state == "stable" and facts["shares"] is not None:
        yield from share_reasons(facts["shares"])
    elif state == "stable" and group["assignment_cause"] is not None:
        yield group["assignment_cause"]["text"]
    elif state == "stable" and not facts["partitions"] and _has_epochs(group):
        yield (
            "this member was assigned no partitions: the group has more members than partitions, "
            "other members have not released theirs, or the topics do not exist"
        )
    elif state == "stable" and not facts["partitions"]:
        yield (
            "this member was assigned no partitions: the group has more members than partitions, "
            "or its leader does not know the topics yet"
        )


def _texts(group: GroupFacts) -> dict[str, str]:
    if group["group_protocol"] is None:
        return _OPEN_STATES
    return _CONSUMER_STATES if _has_epochs(group) else _STATES


def _has_epochs(group: GroupFacts) -> bool:
    return group["group_protocol"] in ("consumer", "share")


def _slow_line_reasons(
    partitions: dict[str, PartitionFacts], slow: dict[int, SlowLineFacts]
) -> Iterator[str]:
    behind = {part["read_from"] for part in partitions.values() if part["lag"] != 0}
    for broker, line in slow.items():
        if broker in behind:
            yield (
                f"the line to broker {broker} is slow: it delivers "
                f"{line['bytes_per_second'] / 1e6:.2f} MB/s, so a fetch takes "
                f"{line['fetch_seconds']:.1f} s"
            )


def _distant_broker_reasons(
    partitions: dict[str, PartitionFacts], distant: dict[int, DistantBrokerFacts]
) -> Iterator[str]:
    behind = {part["read_from"] for part in partitions.values() if part["lag"] != 0}
    for broker, way in distant.items():
        if broker in behind and way["connections"] > 1 and way["bytes_per_second"] is not None:
            yield (
                f"broker {broker} is far away: a round trip takes "
                f"{1000 * way['round_trip_seconds']:.0f} ms. It delivers "
                f"{way['bytes_per_second'] / 1e6:.2f} MB/s over {way['connections']} connections"
            )


def _partition_reasons(
    partitions: dict[str, PartitionFacts], max_wait: float, slow: dict[int, SlowLineFacts]
) -> Iterator[str]:
    def those(key: Literal["being_revoked", "leader"], value: object) -> str:
        return ", ".join(name for name, part in partitions.items() if part[key] == value)

    for owner in sorted(
        {each for part in partitions.values() for each in part["paused_by"]}, key=str
    ):
        paused = ", ".join(name for name, part in partitions.items() if owner in part["paused_by"])
        if owner is None:
            yield f"paused, resume() them: {paused}"
        else:
            yield f"paused by {owner}: {paused}"
    if leaving := those("being_revoked", True):
        yield f"being revoked: {leaving}"
    if headless := those("leader", None):
        yield f"without a leader, or not in the cluster metadata: {headless}"
    for name, part in partitions.items():
        if part["last_error"] is not None:
            yield f"{name}: {part['last_error']}"
        elif part["position"] is None and part["leader"] is not None:
            yield f"{name}: the first position is being looked up"
        elif (part["withheld_seconds"] or 0) > max_wait + LATE_SECONDS:
            yield (
                f"{name}: broker {part['read_from']} has returned nothing from offset "
                f"{part['position']} on for {part['withheld_seconds']:.1f} s, although its log "
                f"ends at {part['end']}: the log may be damaged there. Call seek() to skip it"
            )
        if part["open_transaction"] is not None:
            yield part["open_transaction"]["text"]
        elif hidden := part["hidden_offsets"]:
            yield f"{name}: {offsets_wait(hidden)} for the end of an open transaction"
    late: dict[int | None, list[str]] = {}
    for name, part in partitions.items():
        broker = part["in_flight_to"]
        line = None if broker is None else slow.get(broker)
        usual = 0.0 if line is None else 2 * line["fetch_seconds"]
        allowed = (part["in_flight_max_wait_ms"] or 0) / 1000 + LATE_SECONDS + usual
        if (part["in_flight_seconds"] or 0) > allowed:
            late.setdefault(part["in_flight_to"], []).append(name)
    for broker, names in late.items():
        ago = max(partitions[name]["in_flight_seconds"] or 0 for name in names)
        yield (
            f"broker {broker} has not responded to a fetch that was sent {ago:.1f} s ago: "
            f"{', '.join(names)}"
        )
    active = [part for part in partitions.values() if not part["paused"]]
    quiet = not late and not any(part["last_error"] or part["hidden_offsets"] for part in active)
    if active and quiet and all(part["lag"] == 0 for part in active):
        yield "read to the end: no new records were produced"
        yield from _skipped_records(partitions)


def _skipped_records(partitions: dict[str, PartitionFacts]) -> Iterator[str]:
    """Yield a reason if the rule "latest" left out all records that the logs have."""
    skipped = {
        name: part["started_at_end"]
        for name, part in partitions.items()
        if part["started_at_end"] is not None and part["started_at_end"] == part["position"]
    }
    if skipped:
        places = ", ".join(f"{name} at {offset}" for name, offset in skipped.items())
        yield (
            "started at the end, because auto_offset_reset is 'latest' and no offset was "
            f"committed: {places}. Call seek_to_beginning() to read "
            "earlier records, or give a new group auto_offset_reset='earliest'"
        )


def _lines(facts: ExplanationFacts, reasons: tuple[str, ...]) -> Iterator[str]:
    group, poll = facts["group"], facts["poll"]
    alive = facts["state"] in ("not started", "running")
    yield f"consumer {escaped(facts['client_id'])}: {facts['state']}"
    yield "why no records arrive:" if reasons else "nothing prevents records from arriving"
    yield from (f"  - {reason}" for reason in reasons)
    if group is not None:
        yield (
            f"group {escaped(group['group_id'])}: {group['state']}, "
            f"{'epoch' if _has_epochs(group) else 'generation'} "
            f"{group['generation']}, coordinator {_known(group['coordinator'])}, "
            f"{_assignor(facts, group)}{', leader' if group['leads'] else ''}"
            + (f", last heartbeat {_ago(group['last_heartbeat_seconds_ago'])}" if alive else "")
        )
        chosen = group["group_protocol"] or "not chosen yet"
        yield f"group protocol: {chosen}, because {escaped(group['group_protocol_reason'])}"
    security = facts["security"]
    if security["protocol"] != "PLAINTEXT" or security["encrypted_by"] is not None:
        yield _login(facts["security"])
    if facts["cluster"]["proxy"] is not None:
        yield f"proxy: {escaped(facts['cluster']['proxy'])}"
    yield from _certificate_reasons(facts["security"])
    plain = facts["decoders"]["plain_reason"]
    yield f"record decoders: {'compiled' if plain is None else f'plain, because {plain}'}"
    if alive:
        inside = "inside it now" if poll["inside"] else f"last {_ago(poll['last_seconds_ago'])}"
        yield f"poll(): {inside}"
        if interval := facts["cluster"]["fetch_interval_ms"]:
            yield f"fetches: every {interval:.1f} ms while few records arrive at a time"
    for past in facts["rebalances"][-MAX_REBALANCES:]:
        # After the end of the engine there is no clock.
        when = "" if past["seconds_ago"] is None else f" {_ago(past['seconds_ago'])}"
        yield (
            f"rebalance{when}: generation {past['generation']}, "
            f"{past['seconds']:.3f} s, gained {len(past['gained'])}, lost {len(past['lost'])}, "
            f"now {counted(past['assigned'], 'partition')}; reason: {escaped(past['reason'])}"
        )
    if group is not None and facts["subscription"]["mode"] == "manual":
        yield _retention(facts["commits"])
    if facts["shares"] is not None:
        yield from share_lines(facts["shares"])
    if facts["last_commit_error"]:
        yield f"the latest commit failed: {facts['last_commit_error']}"
    for name, part in facts["partitions"].items():
        marks = {
            "paused": part["paused"],
            "being revoked": part["being_revoked"],
            "in flight": part["in_flight"],
        }
        yield (
            f"{name}: position {_known(part['position'])}, committed "
            f"{_known(part['committed'])}, end {_known(part['end'])}, lag "
            f"{_known(part['lag'])}{_age(part)}, buffered {part['buffered_bytes']} bytes, "
            f"last fetch {_ago(part['last_fetch_seconds_ago'])}"
            + "".join(f", {mark}" for mark, holds in marks.items() if holds)
        )


def _age(part: PartitionFacts) -> str:
    """Return the lag in seconds in brackets, if there is one and it is known."""
    seconds = part["lag_seconds"]
    return f" ({seconds:.1f} s)" if part["lag"] and seconds is not None else ""


def _login(security: SecurityFacts) -> str:
    mechanism, principal = security["mechanism"], security["principal"]
    is_by_connect = security["encrypted_by"] == "connect"
    return (
        f"security: {security['protocol']}"
        + (", encrypted by the function of connect" if is_by_connect else "")
        + ("" if mechanism is None else f", {mechanism}")
        + ("" if principal is None else f" as {escaped(principal)}")
    )


def _retention(commits: CommitFacts) -> str:
    """Return a line on the retention of offsets in a group that has no members."""
    seconds = commits["recommit_seconds"]
    if commits["automatic"] and seconds is not None:
        return f"offsets: committed again every {seconds:g} s, changed or not"
    return (
        "offsets: the group has no members, so brokers delete offsets that do not change. Commit "
        "them again within offsets.retention.minutes"
    )


def _known(value: object) -> str:
    return "unknown" if value is None else escaped(str(value))


def _assignor(facts: ExplanationFacts, group: GroupFacts) -> str:
    if facts["shares"] is not None:
        return "share group"
    return "no assignor yet" if group["protocol"] is None else escaped(str(group["protocol"]))


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s ago"
