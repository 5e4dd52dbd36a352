"""The choice of the brokers on which a test runs in a plain run."""

from __future__ import annotations

import pytest


def plainly_on(*names: str) -> pytest.MarkDecorator:
    """Run a test on these brokers in a plain run, and on both in the full matrices."""
    real = {"cluster": [], "apache": [pytest.mark.real_kafka]}
    params = [
        pytest.param(name, marks=marks if name in names else [*marks, pytest.mark.long])
        for name, marks in real.items()
    ]
    return pytest.mark.parametrize("broker", params, indirect=True)
