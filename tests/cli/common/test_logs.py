"""Log lines: their form, and that they stay lines whatever a peer sends."""

from __future__ import annotations

import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.cli.common.logs import LEVELS, LineFormatter, logging_to_stderr
from rmq.log_limits import LINES_PER_SOURCE


def line(message: str, /, *args: object, **extra: object) -> str:
    record = logging.makeLogRecord(
        {
            "name": "rmq.remoting.server",
            "levelname": "WARNING",
            "msg": message,
            "args": args,
            "created": 1_700_000_000.042,
            **extra,
        }
    )
    return LineFormatter().format(record)


def test_a_line_has_utc_time_level_logger_message_and_facts_in_order() -> None:
    assert line("closed after %d s", 3, peer="10.0.0.7:51034", opaque=7) == (
        "2023-11-14T22:13:20.042Z WARNING rmq.remoting.server: "
        "closed after 3 s peer=10.0.0.7:51034 opaque=7"
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        pytest.param("plain", "plain", id="plain"),
        pytest.param(12.5, "12.5", id="number"),
        pytest.param(None, "None", id="none"),
        pytest.param("two words", '"two words"', id="space"),
        pytest.param("a=b", '"a=b"', id="equals sign"),
        pytest.param('say "hi"', r'"say \"hi\""', id="quotes"),
        pytest.param("", '""', id="empty"),
        pytest.param("a\nb", r'"a\nb"', id="line break"),
        pytest.param("é中", "é中", id="letters beyond ASCII"),
    ],
)
def test_a_fact_is_quoted_when_it_could_be_misread(value: object, written: str) -> None:
    assert line("m", key=value).endswith(f": m key={written}")


@given(message=st.text(), fact=st.text())
def test_no_text_breaks_a_line_in_two(message: str, fact: str) -> None:
    assert len(line("%s", message, fact=fact).splitlines()) == 1


def test_a_traceback_follows_on_lines_of_its_own() -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        text = line("failed", peer="p", exc_info=sys.exc_info())
    first, second, *_, last = text.splitlines()
    assert first.endswith(": failed peer=p")
    assert second == "Traceback (most recent call last):"
    assert last == "ValueError: odd"


def test_the_logging_of_the_caller_is_left_as_it_was() -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))

    def fail() -> None:
        with logging_to_stderr("debug"):
            assert root.level == logging.DEBUG
            raise ValueError("odd")

    with pytest.raises(ValueError, match="odd"):
        fail()
    assert (root.level, list(root.handlers)) == before


def test_every_level_offered_is_one_of_the_standard_library() -> None:
    assert set(map(str.upper, LEVELS)) <= set(logging.getLevelNamesMapping())


def test_lines_of_libraries_are_limited(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to_stderr("info"):
        for number in range(100):
            logging.getLogger("trio.serve_listeners").error("accept failed %d", number)
            logging.getLogger("rmq.test").error("ours %d", number)
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if "accept failed" in line]) == LINES_PER_SOURCE
    assert len([line for line in lines if "ours" in line]) == 100
