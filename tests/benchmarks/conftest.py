"""An unpacked source archive has these tests, but not the benchmarks."""

from __future__ import annotations

from pathlib import Path

collect_ignore_glob = (
    [] if (Path(__file__).parents[2] / "benchmarks" / "broker_load").is_dir() else ["test_*.py"]
)
