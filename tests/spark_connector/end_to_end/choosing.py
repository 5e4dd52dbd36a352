"""Which of the two brokers a test runs on in a plain run, and which in the full matrices alone."""

from __future__ import annotations

import pytest


def plainly_on(*names: str) -> pytest.MarkDecorator:
    """On both brokers, but on those that are not named only in the full matrices."""
    real = {"cluster": [], "apache": [pytest.mark.real_kafka]}
    params = [
        pytest.param(name, marks=marks if name in names else [*marks, pytest.mark.long])
        for name, marks in real.items()
    ]
    return pytest.mark.parametrize("broker", params, indirect=True)
