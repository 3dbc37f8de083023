"""The verdict of a run as Prometheus text, for the textfile collector of node-exporter.

The file is replaced as a whole, so that the collector never reads half of it. Each file holds one
run: give every scheduled job a file of its own. `rmq_pipeline_outcome` is the exit code, 0 if the
check holds, and `rmq_pipeline_end_time_seconds` tells how old it is: alert on both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client import CollectorRegistry

    from rmq.spark.pipelines.printing import Run
    from rmq.spark.pipelines.verdict import Verdict

PREFIX: Final = "rmq_pipeline_"
_LABELS: Final = ("pipeline", "target")


def write_metrics(path: Path, run: Run, verdict: Verdict) -> None:
    """Replace the file with the metrics of this run; raise `ConfigError` if that cannot be."""
    from prometheus_client import write_to_textfile

    try:
        write_to_textfile(str(path), verdict_registry(run, verdict))
    except OSError as exc:
        raise ConfigError("--metrics-file", f"cannot write {path}: {exc.strerror or exc}") from exc


def verdict_registry(run: Run, verdict: Verdict) -> CollectorRegistry:
    """Return the metrics of a run."""
    from prometheus_client import CollectorRegistry, Gauge

    registry = CollectorRegistry()
    common = {"pipeline": run.pipeline, "target": run.target}
    values: dict[str, tuple[str, float | None]] = {
        "outcome": ("0: it holds, 1: it does not hold, 2: could not tell.", verdict.exit_code),
        "start_time_seconds": ("When the last run began.", run.started_s),
        "end_time_seconds": ("When the last run ended.", run.ended_s),
        "duration_seconds": ("How long the last run took.", run.duration_s),
        "records": ("Messages that the last run read.", verdict.records),
        "bytes": ("Bytes that the last run read.", verdict.size_bytes),
    }
    for name, (text, value) in values.items():
        if value is not None:
            Gauge(PREFIX + name, text, _LABELS, registry=registry).labels(**common).set(value)
    families: dict[str, Gauge] = {}
    for gauge in verdict.gauges:
        family = families.get(gauge.name)
        if family is None:
            names = (*_LABELS, *gauge.labels)
            family = Gauge(PREFIX + gauge.name, gauge.help, names, registry=registry)
            families[gauge.name] = family
        family.labels(**common, **gauge.labels).set(gauge.value)
    return registry
