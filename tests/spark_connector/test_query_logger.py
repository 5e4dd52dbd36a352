"""The lag and the rebalances in the progress of a query."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.spark_connector import RebalanceLogger, lag
from kohort.spark_connector._offsets import StreamOffset, flat


def progress(to: dict[str, int], latest: dict[str, int] | None) -> dict[str, Any]:
    """Return progress as Spark does, with a second source of another kind."""
    end = StreamOffset(offsets := flat({"orders": to}, minimum=0), offsets).to_json()
    return {
        "sources": [
            {"description": "RateStream", "endOffset": 17, "latestOffset": None},
            {
                "endOffset": end,
                "latestOffset": {"orders": latest} if latest is not None else None,
            },
        ]
    }


@pytest.mark.parametrize("form", [lambda x: x, json.dumps, lambda x: Progress(x)])
def test_the_lag_is_what_is_left_of_what_the_query_has(form: Any) -> None:
    given = progress({"0": 5, "1": 7, "2": 9}, {"0": 9, "1": 7, "3": 100})
    assert lag(form(given)) == {TopicPartition("orders", 0): 4, TopicPartition("orders", 1): 0}


def test_lag_is_found_in_progress_of_older_checkpoint() -> None:
    end = {"v": 1, "from": {"orders": {"0": 1}}, "to": {"orders": {"0": 5}}}
    given = {"sources": [{"endOffset": end, "latestOffset": {"orders": {"0": 9}}}]}
    assert lag(given) == {TopicPartition("orders", 0): 4}


def test_there_may_be_nothing_to_tell_the_lag_from() -> None:
    assert lag(progress({"0": 5}, None)) == {}
    assert lag(progress({"0": 5}, {})) == {}
    assert lag({"sources": [{"endOffset": {"orders": {"0": 5}}}]}) == {}
    older = progress({"0": 5}, {"0": 5})
    older["sources"][1]["latestOffset"] = older["sources"][1]["endOffset"]  # on Spark 4.1
    assert lag(older) == {}
    assert lag("nothing") == {}
    assert lag(None) == {}


class Progress:
    """A stub of Spark's progress object."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.json = json.dumps(given)
        self.runId = self.id = "run"
        self.name = "sums"


def test_rebalances_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    listener: Any = RebalanceLogger()

    def messages(latest: dict[str, int]) -> list[str]:
        caplog.clear()
        listener.onQueryProgress(SimpleNamespace(progress=Progress(progress({}, latest))))
        return [record.getMessage() for record in caplog.records]

    listener.onQueryStarted(SimpleNamespace())
    with caplog.at_level(logging.INFO, "kohort.spark_connector.rebalance"):
        assert messages({"0": 1, "1": 1}) == ["query sums gained orders-0, orders-1"]
        assert messages({"0": 2, "1": 2}) == []
        assert messages({"1": 2, "2": 2}) == [
            "query sums gained orders-2",
            "query sums gave up orders-0",
        ]
        listener.onQueryIdle(SimpleNamespace())
        listener.onQueryTerminated(SimpleNamespace(runId="run"))
        assert messages({"1": 2}) == ["query sums gained orders-1"]
        listener.onQueryProgress(SimpleNamespace(progress={"sources": []}))


def test_rebalance_of_a_query_with_state_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    listener: Any = RebalanceLogger()

    def warnings(latest: dict[str, int], operators: list[dict[str, str]]) -> int:
        caplog.clear()
        made = progress({}, latest) | {"stateOperators": operators}
        listener.onQueryProgress(SimpleNamespace(progress=Progress(made)))
        return sum("has state and shares its group" in each.getMessage() for each in caplog.records)

    saves = [{"operatorName": "stateStoreSave"}]
    assert warnings({"0": 1, "1": 1}, saves) == 0
    assert warnings({"0": 2, "1": 2}, saves) == 0
    assert warnings({"0": 2}, []) == 0
    assert warnings({"0": 2, "1": 3}, saves) == 1
    assert warnings({"0": 3}, saves) == 1
