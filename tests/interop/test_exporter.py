"""What the exporter check makes of a scrape, and of a machine without the exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from interop.checks.exporter.exporter_families import FILLED
from interop.checks.exporter.series import expect_same_series
from interop.checks.exporter.stock_exporter import (
    JAR_VARIABLE,
    Scrape,
    exporter_jar,
    exporter_version,
)
from interop.support.cases import MismatchError
from interop.support.java import MissingPartError

if TYPE_CHECKING:
    from pathlib import Path

# As the exporter writes them: no HELP, no TYPE, a comma behind the last label.
TEXT: Final = """\
rocketmq_group_diff{group="a",topic="T",} 3.0
rocketmq_group_diff{group="b",topic="T",} 2.147483647E9
rocketmq_producer_offset{topic="T",} 7.0
rocketmq_producer_offset{topic="T",} 9.0
"""


def test_all_samples_of_a_family_are_kept() -> None:
    seen = Scrape.parse(TEXT)
    assert seen.value("rocketmq_group_diff", group="a") == 3
    assert seen.value("rocketmq_group_diff", group="b", topic="T") == 2**31 - 1
    assert seen.latest("rocketmq_producer_offset", topic="T") == 9


@pytest.mark.parametrize("labels", [{"group": "c"}, {"topic": "T"}], ids=["none", "two"])
def test_one_value_is_neither_none_nor_several(labels: dict[str, str]) -> None:
    with pytest.raises(MismatchError, match="one value of rocketmq_group_diff"):
        Scrape.parse(TEXT).value("rocketmq_group_diff", **labels)


def test_series_that_only_one_side_has_are_named() -> None:
    ours = frozenset({("f", (("group", "a"),))})
    theirs = frozenset({("f", (("group", "b"),))})
    expect_same_series(ours, ours)
    with pytest.raises(MismatchError, match=r"more: .*'a'.*less: .*'b'"):
        expect_same_series(ours, theirs)


def test_86_of_its_89_families_can_have_samples() -> None:
    assert len(FILLED) == 86


def test_without_its_jar_the_check_is_missing_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "rocketmq-exporter-1.2.3-SNAPSHOT-exec.jar"
    monkeypatch.setenv(JAR_VARIABLE, str(jar))
    with pytest.raises(MissingPartError, match=JAR_VARIABLE):
        exporter_jar()
    jar.touch()
    assert exporter_version(exporter_jar()) == "1.2.3"
