"""`ConfigFile`: whatever ends a write, the next load finds the old or the new content, whole."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

import pytest

from rmq.broker.tables.topics import TopicTable
from rmq.errors import ConfigError, DiskFullError, StorageError
from rmq.files import ConfigFile
from tests.broker.tables.table_kit import Clock, Settings, golden_files, topic_table
from tests.store.file_steps import Killed, Steps, power_cuts
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "topics.json"
BACKUP: Final = "topics.json.bak"
DAMAGED: Final = "topics.json.damaged"


def parse(text: str) -> str:
    """Take anything between angle brackets."""
    if not (text.startswith("<") and text.endswith(">")):
        raise ValueError("no angle brackets")
    return text


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def folder_with(folder: Path, content: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return folder


# --- writing ---


def test_what_is_written_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "config" / NAME
    ConfigFile(path).write("<über>")
    assert ConfigFile(path).load(parse) == "<über>"
    assert path.read_bytes() == "<über>".encode()


def test_the_content_before_is_kept_as_a_backup_from_the_second_write_on(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / NAME)
    file.write("<1>")
    assert content_of(tmp_path) == {NAME: b"<1>"}
    file.write("<2>")
    assert content_of(tmp_path) == {NAME: b"<2>", BACKUP: b"<1>"}
    file.write("<3>")
    assert content_of(tmp_path) == {NAME: b"<3>", BACKUP: b"<2>"}


def test_half_a_surrogate_pair_is_written_as_a_question_mark(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / NAME)
    file.write("<\ud800>")
    assert file.load(parse) == "<?>"


def test_a_long_text_is_written_whole(tmp_path: Path) -> None:
    text = f"<{'x' * 3_000_000}>"
    ConfigFile(tmp_path / NAME).write(text)
    assert (tmp_path / NAME).read_text() == text


def test_a_system_that_takes_a_little_at_a_time_gets_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    ConfigFile(tmp_path / NAME).write("<as long as it takes>")
    assert (tmp_path / NAME).read_text() == "<as long as it takes>"


def test_new_content_is_on_disk_before_it_gets_its_name_and_names_before_it_counts(
    tmp_path: Path,
) -> None:
    file = ConfigFile(tmp_path / "config" / NAME)
    file.write("<1>")
    with Steps().watching() as steps:
        file.write("<2>")
    assert [step for step in steps.done if step[0] != "open"] == [
        ("write", f"{NAME}.tmp", ""),
        ("fsync", f"{NAME}.tmp", ""),
        ("replace", NAME, BACKUP),
        ("replace", f"{NAME}.tmp", NAME),
        ("sync directory", "config", ""),
    ]


def test_a_directory_made_for_the_file_is_made_durable(tmp_path: Path) -> None:
    with Steps().watching() as steps:
        ConfigFile(tmp_path / "config" / NAME).write("<1>")
    synced = [file for name, file, _ in steps.done if name == "sync directory"]
    assert synced == [tmp_path.name, "config"]


# --- crashes ---

STATES: Final[dict[str, tuple[dict[str, bytes], str | None]]] = {
    "nothing": ({}, None),
    "first": ({NAME: b"<old>"}, "<old>"),
    "usual": ({NAME: b"<old>", BACKUP: b"<older>"}, "<old>"),
    "only-a-backup": ({BACKUP: b"<older>"}, "<older>"),
    "empty": ({NAME: b"", BACKUP: b"<older>"}, "<older>"),
    "zeros": ({NAME: bytes(512), BACKUP: b"<older>"}, "<older>"),
    "damaged": ({NAME: b"<old", BACKUP: b"<older>"}, "<older>"),
    "binary": ({NAME: b"<\xff\xfe>", BACKUP: b"<older>"}, "<older>"),
    "half-written": ({NAME: b"<old>", f"{NAME}.tmp": b"<ne"}, "<old>"),
}
"""What a directory may hold, and what is loaded from it."""

each_state = pytest.mark.parametrize(("content", "old"), STATES.values(), ids=STATES.keys())


@each_state
def test_what_is_loaded_from_each_state(
    content: dict[str, bytes], old: str | None, tmp_path: Path
) -> None:
    folder = folder_with(tmp_path / "config", content)
    assert ConfigFile(folder / NAME).load(parse) == old
    assert content_of(folder) == content


def steps_of_a_write(content: dict[str, bytes], folder: Path) -> int:
    file = ConfigFile(folder_with(folder / "unbroken", content) / NAME)
    file.load(parse)
    with Steps().watching() as steps:
        file.write("<new>")
    assert ConfigFile(file.path).load(parse) == "<new>"
    return len(steps.done)


@each_state
def test_a_write_killed_at_any_step_leaves_the_old_or_the_new_content(
    content: dict[str, bytes], old: str | None, tmp_path: Path
) -> None:
    found: list[str | None] = []
    for fail_at in range(steps_of_a_write(content, tmp_path)):
        file = ConfigFile(folder_with(tmp_path / str(fail_at), content) / NAME)
        file.load(parse)
        with pytest.raises(Killed), Steps(fail_at).watching():
            file.write("<new>")
        found.append(ConfigFile(file.path).load(parse))
    assert set(found) == {old, "<new>"}
    assert found == sorted(found, key=lambda text: text == "<new>")


@each_state
def test_a_second_write_killed_at_any_step_loses_nothing_either(
    content: dict[str, bytes], old: str | None, tmp_path: Path
) -> None:
    del old
    for fail_at in range(6):
        folder = folder_with(tmp_path / str(fail_at), content)
        file = ConfigFile(folder / NAME)
        file.load(parse)
        file.write("<new>")
        with pytest.raises(Killed), Steps(fail_at).watching():
            file.write("<newer>")
        assert ConfigFile(folder / NAME).load(parse) in ("<new>", "<newer>")


@each_state
def test_a_power_cut_at_any_step_leaves_the_old_or_the_new_content(
    content: dict[str, bytes], old: str | None, tmp_path: Path
) -> None:
    folder = folder_with(tmp_path / "config", content)
    file = ConfigFile(folder / NAME)
    file.load(parse)
    with Steps().watching() as steps:
        file.write("<new>")
    ends = list(power_cuts(content, steps))
    assert content_of(folder) == ends[-1]
    found: set[str | None] = set()
    for number, end in enumerate(ends):
        cut = folder_with(tmp_path / str(number), end)
        found.add(ConfigFile(cut / NAME).load(parse))
    assert found == {old, "<new>"}


@each_state
def test_a_write_that_fails_at_any_step_is_told_and_can_be_repeated(
    content: dict[str, bytes], old: str | None, tmp_path: Path
) -> None:
    for fail_at in range(steps_of_a_write(content, tmp_path)):
        folder = folder_with(tmp_path / str(fail_at), content)
        file = ConfigFile(folder / NAME)
        file.load(parse)
        full = OSError(errno.ENOSPC, "full")
        with pytest.raises(DiskFullError) as caught, Steps(fail_at, full).watching():
            file.write("<new>")
        assert caught.value.path == str(folder / NAME)
        assert caught.value.operation == "write"
        assert ConfigFile(folder / NAME).load(parse) in (old, "<new>")
        assert f"{NAME}.tmp" not in content_of(folder)
        file.write("<newer>")
        assert ConfigFile(folder / NAME).load(parse) == "<newer>"
        assert content_of(folder).get(DAMAGED) in (None, content.get(NAME))


# --- damaged files ---


@pytest.mark.parametrize(
    "damage", [b"<old", b"<\xff\xfe>", b"\x1f\x8b\x08\0"], ids=["truncated", "not-utf-8", "binary"]
)
def test_a_damaged_file_is_set_aside_and_never_becomes_the_backup(
    damage: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_with(tmp_path / "config", {NAME: damage, BACKUP: b"<older>"})
    file = ConfigFile(folder / NAME)
    assert file.load(parse) == "<older>"
    assert f"{folder / NAME} is damaged, trying {folder / BACKUP}" in caplog.text
    file.write("<new>")
    assert content_of(folder) == {NAME: b"<new>", BACKUP: b"<older>", DAMAGED: damage}
    file.write("<newer>")
    assert content_of(folder) == {NAME: b"<newer>", BACKUP: b"<new>", DAMAGED: damage}


def test_an_empty_file_gives_way_without_a_trace(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "config", {NAME: b"", BACKUP: b"<older>"})
    file = ConfigFile(folder / NAME)
    assert file.load(parse) == "<older>"
    file.write("<new>")
    assert content_of(folder) == {NAME: b"<new>", BACKUP: b"<older>"}


def test_a_file_that_was_repaired_meanwhile_becomes_the_backup(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "config", {NAME: b"<old"})
    file = ConfigFile(folder / NAME)
    with pytest.raises(ConfigError):
        file.load(parse)
    (folder / NAME).write_bytes(b"<old>")
    assert file.load(parse) == "<old>"
    file.write("<new>")
    assert content_of(folder) == {NAME: b"<new>", BACKUP: b"<old>"}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({NAME: b"<old"}, [NAME]),
        ({NAME: b"<\xff>"}, [NAME, "utf-8"]),
        ({NAME: b"<old", BACKUP: b""}, [NAME]),
        ({BACKUP: b"older>"}, [BACKUP]),
        ({NAME: b"", BACKUP: b"older>"}, [BACKUP]),
        ({NAME: b"<old", BACKUP: b"older>"}, [NAME, BACKUP]),
    ],
    ids=["only", "not-utf-8", "empty-backup", "only-backup", "empty-and-backup", "both"],
)
def test_where_only_damage_is_left_the_error_says_so_and_what_to_do(
    content: dict[str, bytes], named: list[str], tmp_path: Path
) -> None:
    folder = folder_with(tmp_path / "config", content)
    with pytest.raises(ConfigError) as caught:
        ConfigFile(folder / NAME).load(parse)
    assert caught.value.key == str(folder / NAME)
    assert all(name in caught.value.reason for name in named)
    assert caught.value.hint == (
        "repair it or restore a copy; to begin without its content, move it and"
        " topics.json.bak away"
    )
    assert content_of(folder) == content


@pytest.mark.parametrize(
    "content",
    [{}, {NAME: b""}, {BACKUP: b"\n"}, {NAME: bytes(4096), BACKUP: b""}],
    ids=["none", "empty", "empty-backup", "both-empty"],
)
def test_where_nothing_is_left_there_is_nothing(content: dict[str, bytes], tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "config", content)
    assert ConfigFile(folder / NAME).load(parse) is None


def test_without_its_directory_there_is_nothing(tmp_path: Path) -> None:
    assert ConfigFile(tmp_path / "config" / NAME).load(parse) is None


@pytest.mark.parametrize("name", [NAME, BACKUP])
def test_what_the_system_does_not_let_be_read_is_not_passed_over(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(StorageError, match=f"cannot read {tmp_path / name}"):
        ConfigFile(tmp_path / NAME).load(parse)


def test_errors_of_the_parser_that_are_bugs_are_not_taken_for_damage(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "config", {NAME: b"<old>", BACKUP: b"<older>"})

    def broken(_text: str) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ConfigFile(folder / NAME).load(broken)


# --- with a table, on what a stock broker left ---


def loaded(path: Path) -> TopicTable | None:
    topics = topic_table()
    return None if ConfigFile(path).load(topics.load) is None else topics


def test_a_golden_store_is_gone_on_from(tmp_path: Path) -> None:
    path = golden.unpack(golden.CLEAN_MASTER, tmp_path) / "config" / NAME
    before = path.read_bytes()
    topics = loaded(path)
    assert topics is not None
    topics.create_on_send("T", "TBW102", 4, 0)
    ConfigFile(path).write(topics.render())
    assert path.with_name(BACKUP).read_bytes() == before
    again = loaded(path)
    assert again is not None
    assert "T" in again
    assert again.version.counter == 16


def test_a_golden_file_cut_anywhere_is_read_from_its_backup(tmp_path: Path) -> None:
    path = golden.unpack(golden.CLEAN_MASTER, tmp_path) / "config" / NAME
    data = path.read_bytes()
    backup = golden_files(NAME)[f"{golden.CLEAN_MASTER}/config/{BACKUP}"]
    for length in (0, 1, 2, 40, len(data) // 2, len(data) - 2, len(data) - 1):
        path.write_bytes(data[:length])
        topics = loaded(path)
        assert topics is not None
        assert topics.render() == backup


def test_a_new_broker_writes_nothing_until_something_changes(tmp_path: Path) -> None:
    assert loaded(tmp_path / NAME) is None
    assert content_of(tmp_path) == {}
    topics = TopicTable(Settings(), Clock())
    topics.create_on_send_back("%RETRY%g", 1)
    ConfigFile(tmp_path / NAME).write(topics.render())
    assert list(content_of(tmp_path)) == [NAME]
