"""The page for operators says what the code does: every setting, every code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rmq.nameserver.config import OWN_KEYS, SCHEMA
from rmq.nameserver.registration import RouteLimits
from rmq.nameserver.server import Nameserver
from rmq.remoting.codes import RequestCode
from rmq.settings.schema import Effect, format_value
from tests.nameserver.kit import config_for
from tests.paths import DOCS

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.settings.schema import Setting

PAGE = (DOCS / "nameserver.md").read_text()
COUNTS = {Effect.NOW: "at once", Effect.RESTART: "after a restart", Effect.IGNORED: "never"}


@pytest.mark.parametrize("setting", list(SCHEMA), ids=lambda setting: setting.key)
def test_every_setting_is_described_with_its_default(setting: Setting) -> None:
    if setting.effect is Effect.IGNORED and setting.refused is None:
        assert f"`{setting.key}`" in PAGE
        return
    row = re.search(rf"^\| `{setting.key}` \| (.*) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert row is not None
    default, counts, meaning = row.groups()
    expected = setting.default_text or format_value(setting.default)
    assert default.replace("`", "") == expected
    assert counts == COUNTS[setting.effect]
    assert meaning.startswith("*ours*") == (setting.key in OWN_KEYS)


def test_the_codes_are_those_that_are_served(tmp_path: Path) -> None:
    listed = {int(code): name for code, name in re.findall(r"\| (\d{3}) \| ([A-Z_]+) ", PAGE)}
    served = Nameserver(config_for(tmp_path)).table.entries
    assert listed == {code: RequestCode(code).name for code in served}


def test_the_limits_are_those_of_the_code() -> None:
    limits = RouteLimits()
    assert f"{limits.addresses_max:,} broker addresses" in PAGE
    assert f"{limits.queue_entries_max:,} topics" in PAGE
    assert f"names of {limits.name_chars_max:,} characters" in PAGE
