"""What a check is: something that was looked at, what was found, and what to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How bad it is."""

    OK = "ok"
    ODD = "warning"
    """It works, and will not always, or not as well as it could."""
    BAD = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    about: str
    """The machine, a file, a broker."""
    what: str
    state: State
    found: str
    todo: str | None = None


def judged(
    about: str, what: str, found: str, *, todo: str, is_bad: bool = False, is_odd: bool = False
) -> Check:
    """Return a check; what to do is told only where something is wrong."""
    state = State.BAD if is_bad else State.ODD if is_odd else State.OK
    return Check(about, what, state, found, None if state is State.OK else todo)
