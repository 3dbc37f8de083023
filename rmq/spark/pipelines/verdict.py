"""What a pipeline found out: whether something holds, in a sentence, as facts, with what differs.

A verdict is a value: the printed text, the JSON object and the Prometheus metrics are made from it
(`printing`, `metrics`), so that all three say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]

FINDINGS_MAX: Final = 100
"""How many findings a verdict lists; files of the pipeline have them all."""


class Outcome(Enum):
    """Whether what the pipeline is about holds."""

    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES[self]


_EXIT_CODES: Final = {Outcome.HOLDS: 0, Outcome.FAILS: 1, Outcome.UNKNOWN: 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a reader should know: a gap, a difference, a limit that was exceeded."""

    text: str
    """A sentence, without a full stop."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """The same as data; keys in snake_case that stay what they are."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """One more number for the metrics file, for what only this pipeline knows."""

    name: str
    """What follows `rmq_pipeline_`; with its unit, such as `lag_messages`."""
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The result of one run."""

    outcome: Outcome
    sentence: str
    """The whole result in one sentence."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """Numbers and names for programs; keys in snake_case that stay what they are."""
    findings: tuple[Finding, ...] = ()
    findings_left_out: int = 0
    """How many more there are than `findings` lists."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Paths of what was written, by what it is."""
    records: int | None = None
    """How many messages were read."""
    size_bytes: int | None = None
    """How many bytes they have."""
    gauges: tuple[Gauge, ...] = ()

    @property
    def exit_code(self) -> int:
        return self.outcome.exit_code


def bounded(
    findings: Iterable[Finding], total: int | None = None, limit: int = FINDINGS_MAX
) -> tuple[tuple[Finding, ...], int]:
    """Return the first findings, and how many more there are.

    `total` is how many there are in all, where `findings` does not hold all of them.
    """
    remaining = iter(findings)
    listed = tuple(islice(remaining, limit))
    if total is None:
        return listed, sum(1 for _ in remaining)
    return listed, max(0, total - len(listed))
