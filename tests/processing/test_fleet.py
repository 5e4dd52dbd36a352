"""Members that come and go hand their records over: none is lost, and none is handled twice."""

from __future__ import annotations

import pytest

from tests.processing.fleet import PROTOCOLS, RECORDS, SEEDS, run_fleet, without_done_sets

MANY = 20
"""Records that at least show a planted bug. The number of all depends on who revokes what when."""


@pytest.mark.cases(1)  # each is a fleet in minutes of virtual time
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_record_is_handled_twice_as_members_come_and_go(protocol: str, seed: int) -> None:
    report = run_fleet(seed, protocol)
    assert len(report.ends) == report.committed == RECORDS
    assert (report.repeated, report.disordered) == (0, 0)
    assert report.cancelled <= 3


@pytest.mark.cases(1)  # each is a fleet in minutes of virtual time
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_handlers_are_cancelled_without_a_drain(protocol: str) -> None:
    report = run_fleet(1, protocol, drain=0.0)
    assert len(report.ends) == report.committed == RECORDS
    assert report.repeated == 0
    assert report.cancelled > MANY


@pytest.mark.cases(1)  # each is a fleet in minutes of virtual time
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_records_are_handled_twice_without_done_sets(protocol: str) -> None:
    with without_done_sets():
        report = run_fleet(1, protocol)
    assert len(report.ends) == report.committed == RECORDS
    assert report.repeated > MANY
