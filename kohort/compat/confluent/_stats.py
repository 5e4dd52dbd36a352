"""The text that ``stats_cb`` gets: the keys of librdkafka that kohort knows a value for."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from kohort import KafkaConsumer as NativeConsumer
from kohort import TopicPartition
from kohort.compat.confluent._values import OFFSET_INVALID

_MICROSECONDS = 1_000_000


def statistics(
    native: NativeConsumer[Any, Any],
    delivered: Mapping[TopicPartition, int],
    stored: Mapping[TopicPartition, int],
    age: float,
) -> str:
    """Return the figures of a consumer as JSON.

    ``delivered`` and ``stored`` have the offsets after the delivered messages, and those that the
    next commit commits. ``age`` is that of the consumer in seconds.
    """
    facts = native.explain().as_dict()
    figures = native.metrics() or {}
    fetching = figures.get("consumer-fetch-manager-metrics", {})
    client = facts["client_id"]
    found: dict[str, Any] = {
        "name": f"{client}#consumer-1",
        "client_id": client,
        "type": "consumer",
        "ts": int(time.monotonic() * _MICROSECONDS),
        "time": int(time.time()),
        "age": int(age * _MICROSECONDS),
        "replyq": 0,
        "msg_cnt": 0,
        "msg_size": 0,
        "tx": int(fetching.get("fetch-total", 0)),
        "rx": int(fetching.get("fetch-total", 0)),
        "rx_bytes": int(fetching.get("bytes-consumed-total", 0)),
        "rxmsgs": int(fetching.get("records-consumed-total", 0)),
        "rxmsg_bytes": int(fetching.get("bytes-consumed-total", 0)),
        "metadata_cache_cnt": len({each["topic"] for each in facts["partitions"].values()}),
        "brokers": _brokers(facts, fetching),
        "topics": _topics(facts, figures, delivered, stored),
    }
    if facts["group"] is not None:
        found["cgrp"] = _group(facts, figures.get("consumer-coordinator-metrics", {}))
    return json.dumps(found)


def _brokers(facts: Mapping[str, Any], fetching: Mapping[str, float]) -> dict[str, Any]:
    cluster = facts["cluster"]
    unreachable = {str(each) for each in cluster["unreachable"]}
    distances = {str(key): value for key, value in cluster["distant_brokers"].items()}
    delay = int(fetching.get("fetch-throttle-time-max", 0))
    found: dict[str, Any] = {}
    for node in map(str, cluster["brokers"]):
        seconds = distances.get(node, {}).get("round_trip_seconds") or 0
        found[node] = {
            "name": node,
            "nodeid": int(node),
            "source": "learned",
            "state": "DOWN" if node in unreachable else "UP",
            "rtt": {"avg": int(seconds * _MICROSECONDS)},
            "throttle": {"max": delay},
        }
    return found


def _topics(
    facts: Mapping[str, Any],
    figures: Mapping[str, Mapping[str, float]],
    delivered: Mapping[TopicPartition, int],
    stored: Mapping[TopicPartition, int],
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, at in facts["partitions"].items():
        tp = TopicPartition(at["topic"], int(name.rpartition("-")[2]))
        topic = found.setdefault(tp.topic, {"topic": tp.topic, "partitions": {}})
        topic["partitions"][str(tp.partition)] = {
            "partition": tp.partition,
            "broker": _known(at["read_from"], -1),
            "leader": _known(at["leader"], -1),
            "desired": True,
            "unknown": False,
            "fetchq_size": at["buffered_bytes"],
            "fetch_state": "active" if not at["paused"] else "stopped",
            "next_offset": _known(at["position"], OFFSET_INVALID),
            "app_offset": delivered.get(tp, OFFSET_INVALID),
            **_offsets(
                at,
                figures.get(f"consumer-fetch-manager-metrics.{name}", {}),
                stored.get(tp, OFFSET_INVALID),
            ),
        }
    return found


def _offsets(at: Mapping[str, Any], figures: Mapping[str, float], stored: int) -> dict[str, int]:
    position, lead, end = at["position"], figures.get("records-lead"), at["end"]
    committed: int = _known(at["committed"], OFFSET_INVALID)
    low = OFFSET_INVALID if position is None or lead is None else int(position - lead)
    return {
        "stored_offset": stored,
        "committed_offset": committed,
        "lo_offset": low,
        "hi_offset": _known(at["high_watermark"], OFFSET_INVALID),
        "ls_offset": _known(end, OFFSET_INVALID),
        "eof_offset": position if position is not None and position == end else OFFSET_INVALID,
        "consumer_lag": -1 if end is None or committed < 0 else max(0, end - committed),
        "consumer_lag_stored": -1 if end is None or stored < 0 else max(0, end - stored),
    }


def _group(facts: Mapping[str, Any], figures: Mapping[str, float]) -> dict[str, Any]:
    group = facts["group"]
    stable = group["state"] == "stable"
    ago = figures.get("last-rebalance-seconds-ago", -1)
    return {
        "state": "up" if group["coordinator"] is not None else "wait-coord",
        "join_state": "steady" if stable else group["state"],
        "rebalance_age": max(0, int(1000 * ago)),
        "rebalance_cnt": int(figures.get("rebalance-total", 0)),
        "rebalance_reason": group["rebalance_reason"] or "",
        "assignment_size": int(figures.get("assigned-partitions", 0)),
    }


def _known(value: Any, otherwise: int) -> Any:
    return otherwise if value is None else value
