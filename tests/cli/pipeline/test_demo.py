"""`make pipeline` as a newcomer runs it: a pair of brokers, sample traffic, pipelines, pages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from rmq.cli.common.exit_codes import ExitCode
from tests.spark.quick_spark import JAVA_OF_A_MINUTE

if TYPE_CHECKING:
    from pathlib import Path


def test_the_first_minute_shows_pages_tables_and_the_flipped_bit(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    command = [sys.executable, "-m", "rmq", "pipeline", "demo", "--seconds", "2", "--out", str(out)]
    # Java optimises no further than pays off in a minute: that was a third of its CPU time.
    environ = os.environ | {"SPARK_SUBMIT_OPTS": JAVA_OF_A_MINUTE}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, env=environ
    )
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    # At the end the master may notice that its slave was stopped first.
    noticed = [line for line in done.stderr.splitlines() if "it closed the connection" not in line]
    assert noticed == []
    folders = ("audit", "audit-of-damaged-copy", "dlq", "report")
    pages = [out / folder / f"{folder.partition('-')[0]}.html" for folder in folders]
    assert [line.strip() for line in done.stdout.splitlines() if line.startswith("  file:")] == [
        page.as_uri() for page in pages
    ]
    # Dead letters are there to be shown, and the damage is found where it was done.
    verdicts = {name: _verdict(out / name / f"{name}.json") for name in ("report", "audit", "dlq")}
    assert {name: verdict["exit_code"] for name, verdict in verdicts.items()} == {
        "report": 0,
        "audit": 0,
        "dlq": 1,
    }
    flipped = re.search(r"one bit flipped .* at offset (\d+)", done.stdout)
    assert flipped is not None
    damaged = _verdict(out / "audit-of-damaged-copy" / "audit.json")
    assert damaged["exit_code"] == 1
    assert flipped[1] in json.dumps(damaged["findings"])
    assert [*(out / "archive").rglob("topic=Orders/*.parquet")]


def _verdict(path: Path) -> dict[str, object]:
    verdict: dict[str, object] = json.loads(path.read_text())
    return verdict
