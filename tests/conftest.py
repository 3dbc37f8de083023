"""What all tests share: examples that are the same in every run, reports that can cross from one
process to another, and a light heap.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Generator

# Nothing is timed: the machine may have other things to do.
settings.register_profile(
    "rmq", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("rmq")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tests log what no wire can carry; reports of a worker travel as UTF-8."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "replace").decode()) for name, text in report.sections
    ]
    return report


def pytest_collection_finish() -> None:
    """Leave the thousands of tests that were collected out of every later search for garbage.

    A full search would visit all of them, and take longer than tests of quickness allow.
    """
    gc.collect()
    gc.freeze()
