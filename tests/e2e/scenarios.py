"""Scenarios: tests that wait for other processes most of the time, and so are run side by side.

    @scenario
    async def test_messages_arrive(stage: Stage) -> None: ...

makes a test of the function. The first of these tests that pytest comes to runs the scenarios of
all that were selected, at the same time; every test then shows how its own one went. Stock clients
have timers of 10 s and more, so that one after another they would take minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, final

import trio

from tests.e2e.cpp_clients import Clients
from tests.e2e.servers import open_cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    import pytest

    from tests.e2e.servers import Cluster

Play: TypeAlias = "Callable[[Stage], Awaitable[None]]"

ALL_S: Final = 100.0
"""For all of them. What a scenario waits for has a shorter deadline of its own, and a message."""
_AT_ONCE: Final = 8
"""More would only wait for a processor: each runs several processes."""
_LAST_LINES: Final = 15
_PLAY: Final = "play"


@final
@dataclass(frozen=True)
class Stage:
    """What a scenario is given."""

    shared: Cluster
    """A nameserver and one broker that all scenarios use, each with its own topics and groups."""
    folder: Path
    """Of this scenario alone."""
    nursery: trio.Nursery
    """Ends with the scenario."""

    def clients(self, cluster: Cluster | None = None) -> Clients:
        """Return what starts clients of a cluster, by default the shared one."""
        return Clients(self.nursery, (cluster or self.shared).nameserver, self.folder)


@final
class Outcomes:
    """How scenarios went."""

    def __init__(self) -> None:
        self._errors: dict[Play, Exception | None] = {}

    def add(self, play: Play, error: Exception | None) -> None:
        self._errors[play] = error

    def show(self, play: Play) -> None:
        error = self._errors[play]
        if error is not None:
            raise error


def scenario(play: Play) -> Callable[[Outcomes], None]:
    """Make a test of a scenario; it needs the fixture `outcomes`."""

    def test(outcomes: Outcomes) -> None:
        outcomes.show(play)

    test.__name__ = test.__qualname__ = play.__name__
    test.__doc__ = play.__doc__
    test.__module__ = play.__module__
    vars(test)[_PLAY] = play
    return test


def selected_plays(items: Iterable[pytest.Item]) -> list[Play]:
    """Return the scenarios of the tests that pytest is going to run."""
    functions = (getattr(item, "function", None) for item in items)
    return [play for function in functions if (play := getattr(function, _PLAY, None))]


async def play_all(plays: Iterable[Play], folder: Path) -> Outcomes:
    """Run scenarios side by side and return how they went."""
    outcomes = Outcomes()
    places = trio.CapacityLimiter(_AT_ONCE)
    deadline = trio.current_time() + ALL_S
    async with open_cluster(_new(folder / "shared")) as shared:
        await shared.add_broker("broker-shared")

        async def take_place(play: Play) -> None:
            with trio.CancelScope(deadline=deadline):
                async with places:
                    outcomes.add(play, await _play(play, shared, _new(folder / play.__name__)))
                return
            outcomes.add(play, AssertionError(f"not finished within {ALL_S:g} s"))

        async with trio.open_nursery() as nursery:
            for play in plays:
                nursery.start_soon(take_place, play)
    return outcomes


async def _play(play: Play, shared: Cluster, folder: Path) -> Exception | None:
    """Run a scenario and return what went wrong."""
    try:
        async with trio.open_nursery() as nursery:
            await play(Stage(shared, folder, nursery))
            nursery.cancel_scope.cancel()
    except Exception as exc:  # noqa: BLE001 - whatever it is, the test shows it
        error = _alone(exc)
        error.add_note(_last_words(folder, shared.folder))
        return error
    return None


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _alone(error: Exception) -> Exception:
    """Take an error out of the groups around it, if it is the only one."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _last_words(*folders: Path) -> str:
    """Return the end of what processes said."""
    parts = []
    for folder in folders:
        for path in sorted((*folder.rglob("log"), *folder.rglob("stderr"))):
            lines = path.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            parts.append("\n  ".join([f"{path}:", *lines]))
    return "\n".join(parts)
