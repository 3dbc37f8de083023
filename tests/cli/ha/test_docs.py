"""The operators' guide names what there is: settings with their defaults, commands, states."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rmq.broker.config.replication import ReplicationSettings
from rmq.ha.slave_status import SlaveState
from rmq.settings.declaration import attributes
from rmq.settings.schema import Effect, format_value
from tests.cli.parsing import chosen_by
from tests.paths import DOCS

if TYPE_CHECKING:
    from rmq.settings.schema import Setting

GUIDE = (DOCS / "ha.md").read_text()
SETTINGS = [attribute.setting for attribute in attributes(ReplicationSettings, section="broker")]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_setting_of_replication_is_in_the_guide_as_it_is(setting: Setting) -> None:
    row = re.search(rf"^\| `{setting.key}` \| (.*?) \| (.*?) \|", GUIDE, re.MULTILINE)
    assert row is not None
    if setting.default is None:
        assert row[1] == "not set"
    else:
        text = format_value(setting.default)
        assert row[1] == (f"`{text}`" if text else "empty")
    assert row[2] == {Effect.NOW: "at once", Effect.RESTART: "restart"}[setting.effect]


@pytest.mark.parametrize("state", [state.value for state in SlaveState])
def test_every_state_of_a_slave_is_explained(state: str) -> None:
    assert re.search(rf"^\| `{state}` \| \S", GUIDE, re.MULTILINE)


def test_every_command_line_in_the_guide_is_understood(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = re.findall(
        r"(?:`|^    )rmq ha ([\w-]+ -[^`#\n]*|\w+ \w+ -[^`#\n]*)", GUIDE, re.MULTILINE
    )
    assert {line.split()[0] for line in lines} == {
        "status",
        "switch",
        "promote",
        "hand-over",
        "demote",
        "resync",
        "forget",
        "verify",
    }
    for line in lines:
        stand_ins = re.sub(r"\b(SLAVE|OLD|MASTER|NAMESERVER)\b", "10.0.0.1:1", line)
        chosen_by("ha", *stand_ins.split())
    assert capsys.readouterr() == ("", "")
