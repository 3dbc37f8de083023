"""Says which loop runs, while asyncio calls back.

anyio asks sniffio, which knows the loop by the task that runs. In a callback of asyncio there is
none, and what callbacks do begins tasks: a send that has failed asks for its route.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from types import TracebackType

try:
    from sniffio import thread_local
except ImportError:  # without it anyio asks asyncio itself
    thread_local = None  # type: ignore[assignment]


@final
class _InCallback:
    """Use it as a context manager, again and again; it may be nested."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before: list[str | None] = []

    def __enter__(self) -> None:
        self._before.append(thread_local.name)
        thread_local.name = "asyncio"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        thread_local.name = self._before.pop()


def in_callback() -> AbstractContextManager[None]:
    """Return a context manager for callbacks of one loop."""
    return nullcontext() if thread_local is None else _InCallback()
