"""What earlier runs of the report saw, kept beside it: one small JSON file for each run.

A run adds its file when everything else is written. Files that cannot be read, from another
version or cut off, are skipped with a warning: history is a help, not a record.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rmq.spark.pipelines.results import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rmq.spark.jobs.report.lag import GroupLag
    from rmq.spark.pipelines.verdict import Json

logger = logging.getLogger(__name__)

VERSION: Final = 1
RUNS_MAX: Final = 200
"""How many runs are read and drawn; older files stay where they are."""
_PREFIX: Final = "run-"


@dataclass(frozen=True, slots=True)
class PastRun:
    """What one run saw."""

    time_s: float
    target: str
    lags: Mapping[tuple[str, str], int]
    """Messages that a group had not read, by group and topic."""
    lag_seconds: Mapping[tuple[str, str], float | None]
    topics: Mapping[str, tuple[int, int]]
    """Messages and bytes of each topic in the time that the run covers."""
    from_s: float | None
    to_s: float | None
    has_groups: bool = True
    """Whether consumer offsets were known."""


def read_history(folder: Path, target: str | None) -> list[PastRun]:
    """Return what the last runs over the same target saw, the oldest first.

    Without a target it is that of the last run.
    """
    runs: list[PastRun] = []
    try:
        names = sorted(path.name for path in folder.iterdir() if path.name.startswith(_PREFIX))
    except OSError:
        return []
    for name in reversed(names):
        if len(runs) == RUNS_MAX:
            break
        try:
            run = _parse(json.loads((folder / name).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as wrong:
            logger.warning("%s is not a run of the report: %s", folder / name, wrong)
            continue
        if target is None:
            target = run.target
        if run.target == target:
            runs.append(run)
    return sorted(runs, key=lambda run: run.time_s)


def write_run(
    folder: Path,
    time_s: float,
    target: str,
    lags: Sequence[GroupLag],
    topics: Mapping[str, tuple[int, int]],
    span_s: tuple[float | None, float | None],
    *,
    has_groups: bool = True,
) -> Path:
    """Add a run; raise `StorageError`."""
    path = folder / f"{_PREFIX}{int(time_s * 1000):015d}.json"
    groups: list[Json] = [
        {"group": lag.group, "topic": lag.topic, "lag": lag.lag, "lag_seconds": lag.lag_s}
        for lag in lags
    ]
    traffic: list[Json] = [
        {"topic": topic, "messages": messages, "bytes": size}
        for topic, (messages, size) in sorted(topics.items())
    ]
    write_json(
        path,
        {
            "version": VERSION,
            "time": time_s,
            "target": target,
            "from": span_s[0],
            "to": span_s[1],
            "has_groups": has_groups,
            "groups": groups,
            "topics": traffic,
        },
    )
    return path


def _parse(value: Any) -> PastRun:  # noqa: ANN401 - JSON
    if value["version"] != VERSION:
        raise ValueError(f"version {value['version']}")
    return PastRun(
        time_s=float(value["time"]),
        target=str(value["target"]),
        lags={(each["group"], each["topic"]): int(each["lag"]) for each in value["groups"]},
        lag_seconds={
            (each["group"], each["topic"]): each["lag_seconds"] for each in value["groups"]
        },
        topics={
            each["topic"]: (int(each["messages"]), int(each["bytes"])) for each in value["topics"]
        },
        from_s=value["from"],
        to_s=value["to"],
        # Files of earlier versions do not say so.
        has_groups=bool(value.get("has_groups", True)),
    )
