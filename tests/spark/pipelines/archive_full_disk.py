"""An archive on a disk of its own that becomes full while a run writes.

    python -m tests.spark.pipelines.archive_full_disk FOLDER STORE

The process mounts a small file system at FOLDER, which nobody else sees, opens a session of Spark
and archives into the file system the store that it makes at STORE: first with so little room left
that the files of the run do not fit, then again with enough. It writes a JSON object: `session` is
what the session has of settings and can count; `runs` is what each run said, and what it left. To
standard error it writes `SESSION_ENDS` when it is done with the session itself.
The exit code is `CANNOT_MOUNT` where the system does not allow the mount; there are no runs then.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any, Final

from rmq.spark.pipelines.archive import PIPELINE
from rmq.spark.session import SHUFFLE, open_session
from tests.spark.files.store_files import build_store
from tests.spark.pipelines.pipeline_cluster import run_json
from tests.spark.quick_spark import QUICK_SPARK
from tests.store.kill.full_disk import CANNOT_MOUNT, DISK_BYTES, mount
from tests.store.store_kit import message

MESSAGES: Final = 300
BODY_BYTES: Final = 3_000
"""Of noise: 900 KB that no codec makes less."""
BALLAST_BYTES: Final = DISK_BYTES["tmpfs"] - 500_000
SESSION_ENDS: Final = "--- the session has told what it is ---"


def archive(folder: Path, store: Path) -> dict[str, Any]:
    """Run the archive; return what it said, and what it left on the disk."""
    out = folder / "archive"
    where = ("--from-store", str(store), "--broker-name", "b", "--out", str(out))
    code, told = run_json(PIPELINE, *where, "--topic", "Noise")
    names = sorted(path.name for path in out.rglob("*") if not path.name.startswith("."))
    kept = [name for name in names if not name.endswith((".parquet", ".crc"))]
    return {
        "code": code,
        "verdict": told["verdict"],
        "records": told["records"],
        "files": len(names) - len(kept),
        "names": kept,
    }


def main() -> int:
    folder, store = map(Path, sys.argv[1:])
    is_mounted = sys.platform == "linux" and mount(folder, "tmpfs")
    conf = {
        **QUICK_SPARK,
        "spark.local.dir": str(store.parent),
        "spark.sql.session.timeZone": "Asia/Tokyo",
    }
    session = open_session("full disk", "local[1]", conf, quiet=True)
    try:
        told: dict[str, Any] = {
            "session": {
                "time zone": session.conf.get("spark.sql.session.timeZone"),
                "shuffle partitions": session.conf.get(SHUFFLE),
                "rows": session.range(7).count(),
            }
        }
        sys.stderr.write(f"{SESSION_ENDS}\n")
        if is_mounted:
            told["runs"] = fill_and_free(folder, store)
    finally:
        session.stop()
    sys.stdout.write(json.dumps(told))
    return 0 if is_mounted else CANNOT_MOUNT


def fill_and_free(folder: Path, store: Path) -> list[dict[str, Any]]:
    """Archive a store to a disk without and with enough room."""
    noise = random.Random(498)
    bodies = [noise.randbytes(BODY_BYTES) for _ in range(MESSAGES)]
    build_store(store, [message(body, topic="Noise") for body in bodies], segment_bytes=1 << 20)
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    full = archive(folder, store)
    ballast.unlink()
    return [full, archive(folder, store)]


if __name__ == "__main__":
    sys.exit(main())
