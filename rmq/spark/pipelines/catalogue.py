"""All pipelines, in the order in which help lists them. Importing this imports nothing of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.spark.pipelines import archive, audit, dlq, duplicates, forecast, replay, report, verify

if TYPE_CHECKING:
    from rmq.spark.pipelines.job import Pipeline

PIPELINES: Final[tuple[Pipeline, ...]] = (
    archive.PIPELINE,
    report.PIPELINE,
    audit.PIPELINE,
    verify.PIPELINE,
    forecast.PIPELINE,
    dlq.PIPELINE,
    replay.PIPELINE,
    duplicates.PIPELINE,
)
"""A new one is a module with a constant `PIPELINE` and a line here."""
