"""What all tests share: examples that are the same in every run, reports that can cross from one
process to another, and a light heap.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.distribution import Units, deal_order

if TYPE_CHECKING:
    from collections.abc import Generator

    from xdist.remote import Producer  # type: ignore[import-untyped]

# Tests start Python hundreds of times. Without bytecode on disk each of those processes compiles
# all of rmq before it does anything, and each worker all tests, which is minutes in total.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Nothing is timed: the machine may have other things to do. Examples are the same in every run, so
# that many of them tell nothing new; `--hypothesis-profile thorough` draws others, and more.
settings.register_profile(
    "rmq",
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("rmq"), max_examples=1000, derandomize=False
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, put tests in the order in which they are dealt out."""
    if hasattr(config, "workerinput"):
        items[:] = deal_order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Units | None:
    return Units(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Leave the thousands of tests that were collected out of every later search for garbage.

    A full search would visit all of them, and take longer than tests of quickness allow.
    """
    gc.collect()
    gc.freeze()
