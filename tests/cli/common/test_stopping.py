"""Signals of a service: what stops it, and what has it read its settings again."""

from __future__ import annotations

import io
import signal
import sys

import pytest
import trio
import trio.testing

from rmq.cli.common.stopping import Stopping, serving


@pytest.fixture
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())


class Reloads:
    """Counts reloads, each of which waits until the test lets it end."""

    def __init__(self, stopping: Stopping) -> None:
        self.count = 0
        self.may_end = trio.Event()
        self.changed = trio.Event()
        stopping.on_hangup(self.reload)

    async def reload(self) -> None:
        self.count += 1
        self.changed.set()
        self.changed = trio.Event()
        await self.may_end.wait()


@pytest.mark.usefixtures("no_terminal")
async def test_hangup_reloads_and_does_not_stop() -> None:
    async with serving() as (_, stopping):
        reloads = Reloads(stopping)
        changed = reloads.changed
        signal.raise_signal(signal.SIGHUP)
        await changed.wait()
        # Those that come meanwhile are one more together.
        changed = reloads.changed
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        await trio.testing.wait_all_tasks_blocked()
        assert reloads.count == 1
        reloads.may_end.set()
        await changed.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert reloads.count == 2
        # A reload that takes long does not keep it from stopping.
        signal.raise_signal(signal.SIGTERM)
        await stopping.wait()


@pytest.mark.parametrize("has_reload", [True, False])
async def test_a_closed_terminal_stops_it(
    has_reload: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return has_reload

    monkeypatch.setattr(sys, "stdin", Terminal())
    async with serving() as (_, stopping):
        if has_reload:
            Reloads(stopping)
        signal.raise_signal(signal.SIGHUP)
        await stopping.wait()
