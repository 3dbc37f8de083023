"""Log lines: their form, and that they stay lines whatever a peer sends."""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.cli.common.logs import LEVELS, JsonFormatter, LineFormatter, logging_to_stderr
from rmq.errors import ConfigError
from rmq.log_limits import LINES_PER_KIND, LINES_PER_SOURCE, WINDOW_S
from rmq.settings.log_settings import LogSettings

if TYPE_CHECKING:
    from pathlib import Path


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


def test_no_kind_of_line_floods_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1_000.0
    monkeypatch.setattr("rmq.cli.common.logs.time.monotonic", lambda: now)
    log = logging.getLogger("rmq.test")

    def written() -> list[str]:
        return [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines()]

    with logging_to_stderr("debug"):
        for number in range(LINES_PER_KIND + 50):
            log.warning("topic %d not created", number)
            log.error("group %d not created", number)
        log.warning("another kind")
        lines = written()
        assert lines[-3:] == ["topic 199 not created", "group 199 not created", "another kind"]
        assert len(lines) == 2 * LINES_PER_KIND + 1
        # An operator has asked for these.
        for _ in range(LINES_PER_KIND + 50):
            log.debug("step by step")
        assert len(written()) == LINES_PER_KIND + 50
        now += WINDOW_S
        log.warning("topic %d not created", 999)
    # The next one tells; what has no next one is told nevertheless.
    assert written() == [
        "suppressed 50 lines of the kind: rmq.test: group %d not created",
        "topic 999 not created similar_lines_suppressed=50",
    ]


def test_what_was_dropped_is_told_in_the_form_of_all_lines(
    tmp_path: Path,
) -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise ValueError("odd")

    path = tmp_path / "broker.log"
    with logging_to_stderr(None, in_background=True) as logs:
        logs.configure(LogSettings(log_file=path, log_format="json"), "broker-a@10911")
        logging.getLogger("rmq.test").warning("a line", extra={"fact": Unprintable()})
        logging.getLogger("rmq.test").warning("the next")
    line = json.loads(path.read_text().splitlines()[0])
    assert (line["level"], line["process"]) == ("WARNING", "broker-a@10911")
    assert line["message"] == "1 lines dropped: they are not taken fast enough"


def json_line(message: str, /, *args: object, **extra: object) -> dict[str, object]:
    record = logging.makeLogRecord(
        {
            "name": "rmq.test",
            "levelname": "INFO",
            "msg": message,
            "args": args,
            "created": 1_700_000_000.042,
            **extra,
        }
    )
    text = JsonFormatter("broker-a@10911").format(record)
    assert "\n" not in text
    decoded: dict[str, object] = json.loads(text)
    return decoded


def test_a_json_line_has_the_same_facts_with_their_types() -> None:
    assert json_line("closed after %d s", 3, peer="10.0.0.7:51034", opaque=7, why=None) == {
        "time": "2023-11-14T22:13:20.042Z",
        "level": "INFO",
        "process": "broker-a@10911",
        "logger": "rmq.test",
        "message": "closed after 3 s",
        "facts": {"peer": "10.0.0.7:51034", "opaque": 7, "why": None},
    }


@given(message=st.text(), fact=st.text() | st.floats() | st.integers() | st.binary())
def test_every_text_and_fact_makes_one_json_line(message: str, fact: object) -> None:
    # Strict JSON: a fact that has no form in it is written as text.
    line = json_line("%s", message, fact=fact)
    assert line["message"] == message


def test_a_traceback_is_a_member_of_the_json_line() -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        line = json_line("failed", exc_info=sys.exc_info())
    assert str(line["traceback"]).endswith("ValueError: odd")


def test_a_service_says_which_process_a_line_is_of(capfd: pytest.CaptureFixture[str]) -> None:
    with logging_to_stderr(None, in_background=True) as logs:
        logs.configure(LogSettings(), "broker-a@10911")
        logging.getLogger("rmq.test").warning("a line")
    assert capfd.readouterr().err.endswith(" WARNING broker-a@10911 rmq.test: a line\n")


@pytest.mark.parametrize(
    ("on_line", "expected"),
    [
        pytest.param(None, ["second", "third"], id="the file chooses"),
        pytest.param("info", ["first", "second", "third"], id="the command line counts before it"),
    ],
)
def test_the_level_can_change_while_the_service_runs(
    on_line: str | None, expected: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("rmq.test")
    with logging_to_stderr(on_line, in_background=True) as logs:
        logs.configure(LogSettings(log_level="warning"), "nameserver@9876")
        log.info("first")
        log.warning("second")
        logs.set_level("info")
        log.info("third")
    lines = capfd.readouterr().err.splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == expected


def test_lines_go_to_a_file_and_the_last_words_to_both(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log" / "broker.log"
    with logging_to_stderr(None, in_background=True) as logs:
        logs.configure(LogSettings(log_file=path, log_format="json"), "broker-a@10911")
        logging.getLogger("rmq.test").warning("a line")
        logs.say("rmq: error: no more")
    assert capfd.readouterr().err == "rmq: error: no more\n"
    first, second = path.read_text().splitlines()
    assert json.loads(first)["message"] == "a line"
    assert second == "rmq: error: no more"


def test_a_log_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.mkdir()
    with (
        logging_to_stderr(None, in_background=True) as logs,
        pytest.raises(ConfigError, match=f"logFile: {path} cannot be opened: Is a directory"),
    ):
        logs.configure(LogSettings(log_file=path), "broker-a@10911")
