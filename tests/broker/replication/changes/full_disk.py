"""What tests of role changes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.errors import DiskFullError
from rmq.ha.identity import save_identity

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from rmq.broker.broker import Broker
    from rmq.ha.identity import HaIdentity


def cannot_save(monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    """Let the state of one broker find no room on its disk."""
    root = broker.live.current.store.root

    def fails(where: Path, identity: HaIdentity) -> None:
        if where == root:
            raise DiskFullError("write", str(where), "No space left on device")
        save_identity(where, identity)

    monkeypatch.setattr("rmq.broker.replication.saved_state.save_identity", fails)
