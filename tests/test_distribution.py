"""What tests/distribution.py names exists, and is dealt out as it says; workers have own ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.distribution import LONG, SPARK, TOGETHER, deal_order, unit_of
from tests.paths import ROOT
from tests.port_shares import own_share

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest


def test_units_have_files() -> None:
    files = [
        path.relative_to(ROOT).as_posix() for path in ROOT.joinpath("tests").rglob("test_*.py")
    ]
    assert {*LONG, *TOGETHER} <= {unit_of(file) for file in files}
    starts = [start for unit in TOGETHER.values() for start in unit]
    assert [start for start in starts if not any(file.startswith(start) for file in files)] == []


def test_who_uses_the_session_of_spark_is_in_its_unit(request: pytest.FixtureRequest) -> None:
    users = [item for item in request.session.items if "spark" in getattr(item, "fixturenames", ())]
    assert {unit_of(item.nodeid) for item in users} <= {SPARK}


def test_long_units_come_first_and_then_those_with_most_tests(
    request: pytest.FixtureRequest,
) -> None:
    units = _units(deal_order(request.session.items))
    long = [unit for unit in units if unit in LONG]
    assert units[: len(long)] == long == [unit for unit in LONG if unit in long]
    assert len(units) == len(set(units))


def test_workers_and_those_that_replace_them_have_ports_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    shares = []
    for number in range(5):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        shares.append(set(own_share(range(30_000, 32_000))))
    assert min(map(len, shares)) >= 100
    assert sum(map(len, shares)) == len(set.union(*shares))


def _units(items: Iterable[pytest.Item]) -> list[str]:
    """Return the units of tests, one for each row of tests that belong together."""
    units = [unit_of(item.nodeid) for item in items]
    return [unit for before, unit in zip(["", *units], units, strict=False) if unit != before]
