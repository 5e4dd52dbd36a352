"""Logins with mutated responses: 400 in a plain run, 500,000 in ``make fuzz``."""

from __future__ import annotations

import pytest

from kohort.transport.connection._login import Login
from tests.support import login_fuzz

LOGINS = 400


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.timeout(300)
def test_no_answer_crashes_hangs_or_bloats_a_login(seed: int) -> None:
    report = login_fuzz.run(LOGINS, seed=seed)
    assert report.startswith(f"{LOGINS:,} logins in ")
    for outcome in "logged in", "SaslServerError", "OAuthTokenError", "TLS: TlsError":
        assert outcome in report


def test_a_failure_prints_the_command_that_has_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(login: Login, response: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(login_fuzz, "WARM_UP", 0)
    monkeypatch.setattr(Login, "check_handshake", broken)
    with pytest.raises(login_fuzz.LoginFuzzFailure) as failed:
        login_fuzz.work(100, seed=5, start=3, seconds=60.0, longest_s=60.0)
    assert "ZeroDivisionError" in str(failed.value)
    assert "again: python -m tests.support.login_fuzz --seed 5 --start" in str(failed.value)


@pytest.mark.long  # starts processes
def test_the_time_is_bounded() -> None:
    report = login_fuzz.run(1_000_000, seconds=0.0)
    assert report.startswith("0 logins in ")
