"""The plan of a reset: its target as an argument, its offsets, its undo and its JSON."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from kohort import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kohort.admin import ResetPlan, ResetStep
from kohort.admin._plan import Target, make_plan, read_target

NOW = 1_790_000_000.0
TP = TopicPartition("orders", 0)
MONDAY = datetime(2026, 11, 23, 9, tzinfo=timezone(timedelta(hours=1)))
MONDAY_MS = 1_795_420_800_000


def plan(target: Target, committed: int | None = 50, at: int | None = None) -> ResetPlan:
    """Return the plan for a log of the offsets 10 to 99."""
    before = {} if committed is None else {TP: OffsetAndMetadata(committed, "done", 3)}
    found = {TP: None if at is None else OffsetAndTimestamp(at, 5, 2)}
    start, end = OffsetAndTimestamp(10, -1, 1), OffsetAndTimestamp(100, -1, 4)
    return make_plan("g", target, [TP], before, {TP: start}, {TP: end}, found, ())


@pytest.mark.parametrize(
    ("to", "target"),
    [
        ("earliest", Target("earliest")),
        (" latest ", Target("latest")),
        ("1200", Target("offset", 1200)),
        (1200, Target("offset", 1200)),
        ("+100", Target("shift", 100)),
        ("-100", Target("shift", -100)),
        ("-2h", Target("time", round(NOW - 7200) * 1000)),
        ("-1d12h", Target("time", round(NOW - 129_600) * 1000)),
        ("-1.5s", Target("time", round((NOW - 1.5) * 1000))),
        ("-250ms", Target("time", round((NOW - 0.25) * 1000))),
        (timedelta(minutes=5), Target("time", round(NOW - 300) * 1000)),
        (MONDAY, Target("time", MONDAY_MS)),
        ("2026-11-23T09:00:00+01:00", Target("time", MONDAY_MS)),
        ("2026-11-23T08:00:00Z", Target("time", MONDAY_MS)),
        ({TP: 7}, Target("offsets", offsets={TP: 7})),
    ],
)
def test_target_is_read_from_each_form(to: object, target: Target) -> None:
    assert read_target(to, NOW) == target


@pytest.mark.parametrize(
    ("to", "error"),
    [
        ("yesterday", "no target of a reset. Use"),
        ("", "no target of a reset"),
        ("-2x", "no target of a reset"),
        ("2026-11-23T09:00:00", "has no zone. Add Z"),
        (datetime(2026, 11, 23, 9), "has no zone. Add Z"),
        (-5, "for a shift use a text such as '-5'"),
    ],
)
def test_target_of_an_unknown_form_is_a_value_error(to: object, error: str) -> None:
    with pytest.raises(ValueError, match=f"(?i){error}"):
        read_target(to, NOW)


@pytest.mark.parametrize("to", [None, True, 1.5, b"earliest"])
def test_target_of_another_type_is_a_type_error(to: object) -> None:
    with pytest.raises(TypeError, match="no target of a reset"):
        read_target(to, NOW)


@pytest.mark.parametrize(
    ("target", "offset", "clamped", "epoch"),
    [
        (Target("earliest"), 10, False, 1),
        (Target("latest"), 100, False, 4),
        (Target("offset", 20), 20, False, -1),
        (Target("offset", 5), 10, True, -1),
        (Target("offset", 200), 100, True, -1),
        (Target("shift", -30), 20, False, -1),
        (Target("shift", -300), 10, True, -1),
        (Target("shift", 300), 100, True, -1),
        (Target("time", 1), 42, False, 2),
        (Target("offsets", offsets={TP: 30}), 30, False, -1),
    ],
)
def test_plan_has_the_offset_of_its_target(
    target: Target, offset: int, clamped: bool, epoch: int
) -> None:
    [step] = plan(target, at=42).steps
    assert step.after == OffsetAndMetadata(offset, "", epoch)
    assert step.is_clamped is clamped
    assert step.records == 50 - offset
    assert (step.start, step.end) == (10, 100)


def test_plan_uses_the_end_if_no_record_is_later() -> None:
    assert plan(Target("time", 1), at=None).steps[0].after == OffsetAndMetadata(100, "", 4)


def test_plan_of_a_shift_fails_without_a_committed_offset() -> None:
    with pytest.raises(ValueError, match="orders-0 has no committed offset to shift"):
        plan(Target("shift", 1), committed=None)


def test_step_without_a_committed_offset_counts_no_records() -> None:
    [step] = plan(Target("earliest"), committed=None).steps
    assert step.records is None
    assert step.changes


def test_step_changes_if_only_the_metadata_differs() -> None:
    assert plan(Target("offset", 50)).steps[0].changes
    same = OffsetAndMetadata(50, "", 3)
    assert not ResetStep(TP, same, same._replace(leader_epoch=7), 10, 100).changes


def test_undo_restores_offset_metadata_and_epoch() -> None:
    [step] = plan(Target("earliest")).undo.steps
    assert step.after == OffsetAndMetadata(50, "done", 3)
    [step] = plan(Target("earliest"), committed=None).undo.steps
    assert step.after is None


def test_plan_survives_json() -> None:
    for committed in (50, None):
        made = plan(Target("earliest"), committed)
        assert ResetPlan.from_json(made.to_json()) == made
        assert ResetPlan.from_json(made.undo.to_json()) == made.undo


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"group": "g", "steps": [{}]}'])
def test_other_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="not the plan of a reset"):
        ResetPlan.from_json(text)
