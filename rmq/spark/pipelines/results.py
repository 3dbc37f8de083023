"""Files that pipelines leave for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rmq.spark.pages.page import write_text
from rmq.spark.pipelines.printing import verdict_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rmq.spark.pipelines.printing import Run
    from rmq.spark.pipelines.verdict import Json, Verdict


def write_json(path: Path, value: Mapping[str, Json]) -> None:
    """Write one JSON object; raise `StorageError` if that cannot be."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def write_verdict(path: Path, run: Run, verdict: Verdict, **more: Json) -> None:
    """Write what `--json` prints, and what only the file has room for."""
    write_json(path, verdict_object(run, verdict) | more)
