"""Verdicts as text and as one JSON object."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rmq.model.words import seconds_text
from rmq.spark.pipelines.verdict import Outcome

if TYPE_CHECKING:
    from rmq.spark.pipelines.job import Job
    from rmq.spark.pipelines.verdict import Json, Verdict

TEXT_FINDINGS_MAX: Final = 20
"""How many findings are printed as text; JSON has all that the verdict lists."""

_WORDS: Final = {
    Outcome.HOLDS: "holds",
    Outcome.FAILS: "does not hold",
    Outcome.UNKNOWN: "could not tell",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a pipeline, as the printed results name it."""

    pipeline: str
    target: str
    """What was checked: a cluster, a store."""
    started_s: float
    ended_s: float

    @classmethod
    def of(cls, job: Job, target: str) -> Run:
        """Return the run of a job that ends now."""
        return cls(job.name, target, job.started_s, time.time())

    @property
    def duration_s(self) -> float:
        return max(0.0, self.ended_s - self.started_s)


def verdict_text(run: Run, verdict: Verdict) -> str:
    """Return the lines of text."""
    lines = [f"{run.pipeline}: {_WORDS[verdict.outcome]}: {printable(verdict.sentence)}"]
    shown = verdict.findings[:TEXT_FINDINGS_MAX]
    lines += [f"  - {printable(finding.text)}" for finding in shown]
    left_out = len(verdict.findings) - len(shown) + verdict.findings_left_out
    if left_out:
        lines.append(f"  … and {left_out:,} more")
    width = max((len(name) for name in verdict.outputs), default=0)
    lines += [f"  {name.ljust(width)}  {printable(path)}" for name, path in verdict.outputs.items()]
    if verdict.outcome is not Outcome.UNKNOWN:
        lines.append(f"  took {seconds_text(run.duration_s)}")
    return "\n".join(lines) + "\n"


def verdict_json(run: Run, verdict: Verdict) -> str:
    """Return one JSON object on one line."""
    return json.dumps(verdict_object(run, verdict), ensure_ascii=False, allow_nan=False) + "\n"


def verdict_object(run: Run, verdict: Verdict) -> dict[str, Json]:
    """Return what JSON is made of; numbers that JSON does not have become null."""
    return {
        "pipeline": run.pipeline,
        "target": run.target,
        "outcome": verdict.outcome.value,
        "exit_code": verdict.exit_code,
        "verdict": verdict.sentence,
        "started": time_text(run.started_s),
        "ended": time_text(run.ended_s),
        "duration_s": round(run.duration_s, 3),
        "records": verdict.records,
        "bytes": verdict.size_bytes,
        "facts": _finite(dict(verdict.facts)),
        "findings": [
            {"text": finding.text, **{key: _finite(value) for key, value in finding.facts.items()}}
            for finding in verdict.findings
        ],
        "findings_left_out": verdict.findings_left_out,
        "outputs": dict(verdict.outputs),
    }


def time_text(time_s: float) -> str:
    """Return a moment as ISO 8601 has it, in UTC, to the second."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def printable(text: str) -> str:
    """Return text without control characters; names and bodies are not trusted."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def _finite(value: Json) -> Json:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value
