"""What a scenario is: a name, a set-up, and the bytes of one heavy request. No I/O here.

A scenario is added by writing one and listing it in `all_scenarios.py`. Its `build` gets the `Site`
and returns whole frames; they are written to one connection at once, and the scenario is over when
as many answers have come. Frames are made before the clock runs.
"""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from benchmarks.broker_load.frames import OPAQUE_FIRST
from rmq.remoting.codes import LanguageCode, RequestCode
from rmq.remoting.command import encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.remoting.header import Header

PROBE_TOPIC: Final = "FairProbe"
"""The topic that probes send to and ask the route of."""


class Target(enum.Enum):
    """Which server gets the request; the same one is probed."""

    BROKER = "broker"
    NAMESERVER = "nameserver"


@dataclass(frozen=True, slots=True)
class Size:
    """How large the state of the servers is."""

    topics: int
    queues: int
    groups: int
    connections: int

    def topic(self, number: int) -> str:
        return f"FairTopic{number % self.topics:05d}"

    def group(self, number: int) -> str:
        return f"FairGroup{number % self.groups:05d}"


FULL: Final = Size(topics=1_000, queues=8, groups=1_000, connections=10_000)
QUICK: Final = Size(topics=100, queues=4, groups=100, connections=200)


class Site(Protocol):
    """The servers a scenario is run against, as far as a scenario needs them."""

    @property
    def size(self) -> Size: ...

    @property
    def is_quick(self) -> bool:
        """Whether scenarios should be a tenth of their size."""

    def fresh(self, stem: str) -> str:
        """Return a name that was never used at this site."""

    def ask(self, frames: Sequence[bytes], target: Target = Target.BROKER) -> list[bytes]:
        """Send requests, wait for as many answers, and return their bodies."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One heavy request."""

    name: str
    build: Callable[[Site], Sequence[bytes]]
    """Makes the frames; called after `prepare`, for every round."""
    target: Target = Target.BROKER
    prepare: Callable[[Site], None] | None = None
    """Makes what the request needs; called once, before the first round."""
    awaits_answers: bool = True
    """False for requests without an answer, one-way ones among them."""
    may_be_cut: bool = False
    """The server may end the connection instead of answering."""
    hangs_up: bool = False
    """The connection is closed after the answers, and that is what is heavy."""


_numbers: Final = itertools.cycle(range(OPAQUE_FIRST, OPAQUE_FIRST + 800_000))
"""Opaque numbers of six digits, as `AnswerCutter` wants them."""


def frame(
    code: RequestCode, header: Header | None = None, body: bytes = b"", *, flag: int = 0
) -> bytes:
    """Return a whole request."""
    head = encode_frame(
        code=code,
        flag=flag,
        opaque=next(_numbers),
        header=header,
        body_length=len(body),
        language=LanguageCode.JAVA,
    )
    return head + body
