"""docs/formats/replication.md says what the declarations of the link say."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from construct import Struct

from rmq.ha.protocol import wire
from rmq.ha.protocol.log_view import TAIL_BYTES
from rmq.ha.protocol.master import MasterSettings
from rmq.ha.protocol.slave_link import FRAME_BYTES_MAX
from rmq.model.in_sync_record import RECORD_BYTES_MAX, InSyncRecord
from tests.format_pages import check_byte_table, section

if TYPE_CHECKING:
    import enum

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "formats" / "replication.md"

LAYOUTS: Final = {
    "Report": wire.Report,
    "Transfer": wire.Transfer,
    "Down": wire.Down,
    "Up": wire.Up,
    "Challenge": wire.Challenge,
    "Hello": wire.Hello,
    "Welcome": wire.Welcome,
}
NUMBERS: Final[dict[tuple[str, str], type[enum.IntEnum] | type[enum.IntFlag]]] = {
    ("Down", "`kind`"): wire.DownKind,
    ("Down", "bit of `flags`"): wire.DownFlag,
    ("Up", "`kind`"): wire.UpKind,
    ("Up", "bit of `flags`"): wire.UpFlag,
    ("Hello", "`catch_up`"): wire.CatchUp,
    ("Welcome", "`verdict`"): wire.HelloVerdict,
}


@pytest.mark.parametrize("title", LAYOUTS)
def test_the_documented_byte_table_is_that_of_the_declaration(title: str) -> None:
    check_byte_table(PAGE, title, LAYOUTS[title])


@pytest.mark.parametrize(("title", "column"), NUMBERS)
def test_the_documented_numbers_are_those_of_the_code(title: str, column: str) -> None:
    _, _, table = section(PAGE, title).partition(f"\n| {column} | name |")
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", table.partition("\n\n")[0], re.MULTILINE)
    assert rows == [(str(each.value), each.name) for each in NUMBERS[title, column]]


def test_every_layout_of_the_link_is_documented() -> None:
    declared = {name for name, each in vars(wire).items() if isinstance(each, Struct)}
    assert declared == set(LAYOUTS)


def test_the_documented_members_of_a_record_are_its_fields() -> None:
    members = re.findall(r"^\| (`.*?) \|", section(PAGE, "In-sync record"), re.MULTILINE)
    documented = [name for cell in members for name in re.findall(r"`(\w+)`", cell)]
    assert documented == [field.encode_name for field in msgspec.structs.fields(InSyncRecord)]


def test_the_documented_preamble_and_limits_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert f"`{wire.PREAMBLE.hex(' ')}`" in page
    assert f"The version is {wire.PREAMBLE[-1]};" in page
    assert f"{wire.BODY_BYTES_MAX:,} bytes" in page
    assert RECORD_BYTES_MAX == wire.BODY_BYTES_MAX
    assert f"{FRAME_BYTES_MAX // 1024**2} MiB" in page
    assert f"{TAIL_BYTES // 1024} KiB" in page
    defaults: dict[str, Any] = {field.name: field.default for field in fields(MasterSettings)}
    assert f"{defaults['handshake_s']:g} s, then" in section(PAGE, "Times")
    assert f"up to {defaults['frame_bytes'] // 1024} KiB" in page
