"""Scenarios of replication, told as text: see `tests.ha.protocol.scenario` for what lines mean."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.ha.protocol.scenario import ScenarioError, Stage, play

SCENARIOS: Final = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in SCENARIOS])
def test_it_goes_as_it_is_told(path: Path) -> None:
    play(path)


def test_a_scenario_that_is_not_so_says_where(tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text("master sync\n\nappend m1 40  # nobody is there\nexpect m1 -> SEND_OK\n")
    with pytest.raises(ScenarioError, match=r"wrong.txt:4: .*SLAVE_NOT_AVAILABLE"):
        play(path)


@pytest.mark.parametrize("line", ["expect pigs to fly", "expect m1 -> SEND_OK", "expect end 7"])
def test_what_cannot_be_seen_is_not_passed_over(line: str) -> None:
    with pytest.raises(ScenarioError):
        Stage().play(line)
