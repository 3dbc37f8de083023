"""Results of listeners. Pure.

A listener returns `None` or `ConsumeResult.SUCCESS` for done, `ConsumeResult.LATER` or
`Later(level)` for again later. Anything else is a mistake in the listener, which may not have
finished the messages, so they are given to it again later.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple, TypeAlias

from rmq.client.core.messages import DELAY_LEVEL_MAX
from rmq.errors import ConfigError

DEAD_LETTER_LEVEL: Final = -1
"""As a delay level: not later, but at once to the dead letters."""
BROKER_DECIDES_LEVEL: Final = 0
"""As a delay level: longer from time to time, 10 s at first, 2 h at last."""


class ConsumeResult(enum.Enum):
    """Result of a call of the listener."""

    SUCCESS = "success"
    LATER = "later"


class Later(NamedTuple("_Later", [("delay_level", int)])):
    """Again later: after the time of a delay level (1 to 18), or as the broker decides (0).

    -1 gives up: the messages go to the group's dead letters. Listeners that consume in order
    cannot choose a level: their queue pauses as configured.
    """

    __slots__ = ()

    def __new__(cls, delay_level: int = BROKER_DECIDES_LEVEL) -> Later:
        if not DEAD_LETTER_LEVEL <= delay_level <= DELAY_LEVEL_MAX:
            raise ConfigError(
                "delay_level", f"{delay_level} is not -1 (dead letters), 0 (broker decides) to 18"
            )
        return super().__new__(cls, delay_level)


ListenerResult: TypeAlias = ConsumeResult | Later | None
"""What a listener may return."""


class Outcome(NamedTuple):
    """The decoded result of a call: finished, or delivered again after a delay."""

    is_success: bool
    delay_level: int = BROKER_DECIDES_LEVEL
    """Delay level of the redelivery, if it is no success."""
    nonsense: str | None = None
    """What was returned, if that is nothing a listener may return."""


SUCCESS: Final = Outcome(is_success=True)
FAILED: Final = Outcome(is_success=False)
"""The outcome of a call that raised, too."""

_CHARS_SHOWN_MAX: Final = 200


def understood(returned: object) -> Outcome:
    """Return the outcome that the return value of a listener stands for."""
    if returned is None or returned is ConsumeResult.SUCCESS:
        return SUCCESS
    if returned is ConsumeResult.LATER:
        return FAILED
    if isinstance(returned, Later):
        return Outcome(is_success=False, delay_level=returned.delay_level)
    return Outcome(is_success=False, nonsense=_shown(returned))


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception as exc:  # noqa: BLE001 - the repr of an application's class
        text = f"one that cannot be shown: {type(exc).__name__}"
    if len(text) > _CHARS_SHOWN_MAX:
        text = text[:_CHARS_SHOWN_MAX] + "..."
    return f"{type(value).__name__} {text}"
