"""The stacks of all tasks, for operators who ask a client for them (307 with `jstack`).

Stock clients show the stacks of their threads. Here work is done by tasks: each is shown with the
places it waits at, the outermost first.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import FrameType

TASKS_MAX: Final = 500
"""Tasks shown with their stacks; further ones are only counted."""
FRAMES_MAX: Final = 50


def task_stacks() -> str:
    """Return all tasks of the running loop as text."""
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    shown = [_described(task) for task in tasks[:TASKS_MAX]]
    if len(tasks) > TASKS_MAX:
        shown.append(f"and {len(tasks) - TASKS_MAX} more tasks")
    return "\n\n".join(shown) + "\n"


def _described(task: asyncio.Task[Any]) -> str:
    lines = [task.get_name()]
    waits: Any = task.get_coro()
    while waits is not None:
        frame: FrameType | None = getattr(waits, "cr_frame", None) or getattr(
            waits, "gi_frame", None
        )
        if frame is None:
            break
        if len(lines) > FRAMES_MAX:
            lines.append("    ...")
            break
        code = frame.f_code
        lines.append(f"    at {code.co_qualname} ({code.co_filename}:{frame.f_lineno})")
        waits = getattr(waits, "cr_await", None) or getattr(waits, "gi_yieldfrom", None)
    return "\n".join(lines)
