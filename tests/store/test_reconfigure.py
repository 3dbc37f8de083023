"""Settings that change while a store is open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmq.errors import ConfigError
from rmq.model.offsets import QueueOffset
from rmq.store.append import AppendStatus
from rmq.store.core import FIXED_SETTINGS
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import TOPIC, message, open_core, put


def test_limits_follow_the_new_settings() -> None:
    core = open_core(MemoryStorage())
    put(core, [message(b"x" * 100), message(b"y"), message(b"z")])
    core.reconfigure(replace(core.config, message_bytes_max=50, transfer_count_in_memory=2))
    (refused,) = core.append([message(b"x" * 51)])
    assert refused.status is AppendStatus.MESSAGE_ILLEGAL
    assert core.reads.get(TOPIC, 0, QueueOffset(0), 32).count == 2


@pytest.mark.parametrize("name", FIXED_SETTINGS)
def test_what_describes_the_files_stays(name: str) -> None:
    core = open_core(MemoryStorage())
    before = core.config
    old = getattr(before, name)
    if isinstance(old, bool):
        new: object = not old
    elif isinstance(old, int):
        new = old * 2
    elif isinstance(old, str):
        new = old + " 9h"
    elif isinstance(old, tuple):
        new = (*old, before.root / "more")
    else:
        new = old / "elsewhere"
    with pytest.raises(ConfigError, match=FIXED_SETTINGS[name]):
        core.reconfigure(replace(before, **{name: new}))  # type: ignore[arg-type]
    assert core.config is before
