"""What an archive holds: for each queue the first and last offset, how many messages, checksums.

A run that archived something has a manifest of its own, which lies with its files; `Manifest` is
all of them put together. Both are values here, and JSON in files. Pure.

Two checksums are kept for each queue. Neither depends on the order of rows or on how they are
spread over files, and those of several runs are put together to that of all:

    checksum   xor of xxhash64(queueOffset, body, properties sorted by name): any other content,
               offset or property gives another one
    crc        sum of crc32(body): the same for the same bodies at other offsets, as after a replay
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.spark.pipelines.verdict import Json

VERSION: Final = 1
_LONG: Final = 1 << 64


class Queue(NamedTuple):
    """One queue of a topic."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic} on {self.broker_name}"


class Gap(NamedTuple):
    """Offsets that the archive does not have; the last one included."""

    first: int
    last: int
    is_accepted: bool = False
    """Whether it was accepted with --accept-gap."""

    @property
    def messages(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Part:
    """What is archived of one queue: by one run, or by all."""

    first: int
    last: int
    count: int
    size_bytes: int
    """Of the bodies."""
    checksum: int
    crc: int
    last_store_ms: int
    """When the last message was stored: if the broker has another one there, it is another queue of
    the same name.
    """
    gaps: tuple[Gap, ...] = ()

    @property
    def last_message(self) -> int | None:
        """The offset of the last message that is archived; None if there is none but gaps."""
        offset = self.last
        for gap in reversed(self.gaps):
            if gap.last == offset:
                offset = gap.first - 1
        return offset if offset >= self.first else None

    @property
    def is_dense(self) -> bool:
        """Whether count, offsets and gaps go together: nothing is there twice."""
        missing = sum(gap.messages for gap in self.gaps)
        return self.count + missing == self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class RunManifest:
    """What one run archived."""

    run: int
    archive_id: str
    source: str
    started_s: float
    ended_s: float
    parts: Mapping[Queue, Part]

    @property
    def messages(self) -> int:
        return sum(part.count for part in self.parts.values())


class RunSummary(NamedTuple):
    """What the manifest of all says about one run."""

    run: int
    started_s: float
    ended_s: float
    messages: int
    source: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that is archived."""

    archive_id: str
    last_run: int = 0
    parts: Mapping[Queue, Part] = field(default_factory=dict)
    runs: tuple[RunSummary, ...] = ()

    @property
    def messages(self) -> int:
        return sum(part.count for part in self.parts.values())

    @property
    def gaps(self) -> list[tuple[Queue, Gap]]:
        """Gaps that are not accepted."""
        return [
            (queue, gap)
            for queue, part in sorted(self.parts.items())
            for gap in part.gaps
            if not gap.is_accepted
        ]

    def with_run(self, run: RunManifest) -> Manifest:
        """Add a run; raise `ConfigError` if it does not follow the last one."""
        self.require_own(run)
        parts = dict(self.parts)
        for queue, part in run.parts.items():
            parts[queue] = joined(queue, parts[queue], part) if queue in parts else part
        summary = RunSummary(run.run, run.started_s, run.ended_s, run.messages, run.source)
        return replace(self, last_run=run.run, parts=parts, runs=(*self.runs, summary))

    def require_own(self, run: RunManifest) -> None:
        """Raise `ConfigError` if a run is not one of this archive."""
        if run.archive_id != self.archive_id:
            raise ConfigError(
                "--out",
                f"run {run.run} belongs to another archive ({run.archive_id}) than the manifest"
                f" ({self.archive_id})",
                hint="give --out and --checkpoint of the same archive",
            )

    def accepting_gaps(self) -> Manifest:
        """Return the same with all gaps accepted."""
        parts = {
            queue: replace(part, gaps=tuple(gap._replace(is_accepted=True) for gap in part.gaps))
            for queue, part in self.parts.items()
        }
        return replace(self, parts=parts)


def joined(queue: Queue, earlier: Part, later: Part) -> Part:
    """Put two parts of one queue together; what lies between them is a gap."""
    if later.first <= earlier.last:
        raise ConfigError(
            "--out",
            f"{queue}: a run begins with offset {later.first}, which an earlier one archived"
            f" already (up to {earlier.last})",
        )
    between = (Gap(earlier.last + 1, later.first - 1),) if later.first > earlier.last + 1 else ()
    return replace(
        later,
        first=earlier.first,
        count=earlier.count + later.count,
        size_bytes=earlier.size_bytes + later.size_bytes,
        checksum=earlier.checksum ^ later.checksum,
        crc=(earlier.crc + later.crc) % _LONG,
        last_store_ms=later.last_store_ms if later.count else earlier.last_store_ms,
        gaps=(*earlier.gaps, *between, *later.gaps),
    )


# --- JSON ---------------------------------------------------------------------------------------


def run_json(run: RunManifest) -> dict[str, Json]:
    """Return a run as JSON has it."""
    return {
        "version": VERSION,
        "archive_id": run.archive_id,
        "run": run.run,
        "source": run.source,
        "started": run.started_s,
        "ended": run.ended_s,
        "messages": run.messages,
        "queues": _parts_json(run.parts),
    }


def parse_run(value: Any) -> RunManifest:  # noqa: ANN401 - JSON
    """Read what `run_json` wrote; raise `ValueError`, `KeyError` or `TypeError`."""
    _check_version(value)
    return RunManifest(
        run=int(value["run"]),
        archive_id=str(value["archive_id"]),
        source=str(value["source"]),
        started_s=float(value["started"]),
        ended_s=float(value["ended"]),
        parts=_parse_parts(value["queues"]),
    )


def manifest_json(manifest: Manifest) -> dict[str, Json]:
    """Return all of an archive as JSON has it."""
    runs: list[Json] = [
        {
            "run": run.run,
            "folder": f"data/{folder_name(run.run)}",
            "started": run.started_s,
            "ended": run.ended_s,
            "messages": run.messages,
            "source": run.source,
        }
        for run in manifest.runs
    ]
    return {
        "version": VERSION,
        "archive_id": manifest.archive_id,
        "last_run": manifest.last_run,
        "messages": manifest.messages,
        "checksum_is": "xor of xxhash64(queueOffset, body, properties sorted by name)",
        "crc_is": "sum of crc32(body), modulo 2^64",
        "queues": _parts_json(manifest.parts),
        "runs": runs,
    }


def parse_manifest(value: Any) -> Manifest:  # noqa: ANN401 - JSON
    """Read what `manifest_json` wrote; raise `ValueError`, `KeyError` or `TypeError`."""
    _check_version(value)
    return Manifest(
        archive_id=str(value["archive_id"]),
        last_run=int(value["last_run"]),
        parts=_parse_parts(value["queues"]),
        runs=tuple(
            RunSummary(
                int(run["run"]),
                float(run["started"]),
                float(run["ended"]),
                int(run["messages"]),
                str(run["source"]),
            )
            for run in value["runs"]
        ),
    )


def folder_name(run: int) -> str:
    """Return the name of the folder of a run; readers see its number as the column `run`."""
    return f"run={run:06d}"


def _check_version(value: Any) -> None:  # noqa: ANN401 - JSON
    if value["version"] != VERSION:
        raise ValueError(f"version {value['version']}, this rmq knows {VERSION}")


def _parts_json(parts: Mapping[Queue, Part]) -> list[Json]:
    return [
        {
            "topic": queue.topic,
            "broker_name": queue.broker_name,
            "queue_id": queue.queue_id,
            "first": part.first,
            "last": part.last,
            "count": part.count,
            "bytes": part.size_bytes,
            "checksum": f"{part.checksum:016x}",
            "crc": f"{part.crc:016x}",
            "last_store_ms": part.last_store_ms,
            "gaps": [
                {"first": gap.first, "last": gap.last, "accepted": gap.is_accepted}
                for gap in part.gaps
            ],
        }
        for queue, part in sorted(parts.items())
    ]


def _parse_parts(values: Iterable[Mapping[str, Any]]) -> dict[Queue, Part]:
    found: dict[Queue, Part] = {}
    for value in values:
        queue = Queue(str(value["topic"]), str(value["broker_name"]), int(value["queue_id"]))
        part = Part(
            first=int(value["first"]),
            last=int(value["last"]),
            count=int(value["count"]),
            size_bytes=int(value["bytes"]),
            checksum=int(value["checksum"], 16),
            crc=int(value["crc"], 16),
            last_store_ms=int(value["last_store_ms"]),
            gaps=tuple(
                Gap(int(gap["first"]), int(gap["last"]), bool(gap["accepted"]))
                for gap in value["gaps"]
            ),
        )
        if not part.is_dense:
            raise ValueError(f"{queue}: count, offsets and gaps contradict each other")
        found[queue] = part
    return found
