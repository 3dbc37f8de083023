"""Folders of this machine, as Spark must be told them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def spark_path(path: Path) -> str:
    """Return a path that means the same to Spark as to this process.

    On a cluster a path without a scheme may be one of HDFS. Results lie on a file system that all
    machines see, beside the files that the driver writes itself.
    """
    return f"file://{path.absolute()}"
