"""The process that forks Spark's Python workers in a local session.

It is PySpark's own, except that a worker says nothing when Java has closed its socket first. Over
TCP the last bytes of such a worker vanish; over a Unix socket they are an error, and PySpark would
print its traceback although nothing is lost: who closes has read all it wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import daemon

if TYPE_CHECKING:
    from collections.abc import Callable


def run() -> None:
    """Fork workers until Java says that it is enough."""
    daemon.worker = quiet(daemon.worker)
    daemon.manager()


def quiet(work: Callable[..., int]) -> Callable[..., int]:
    """Return `work` with another end if the socket is gone: the worker stops."""

    def work_quietly(*arguments: object) -> int:
        try:
            return work(*arguments)
        except BrokenPipeError:
            return 1

    return work_quietly


if __name__ == "__main__":
    run()
