"""The stacks of all tasks, for operators who ask a client for them (307 with `jstack`).

Stock clients show the stacks of their threads. Here work is done by tasks: each is shown with the
places it waits at, the outermost first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Iterator

TASKS_MAX: Final = 500
"""Tasks shown with their stacks; further ones are only counted."""
FRAMES_MAX: Final = 50


def task_stacks() -> str:
    """Return all tasks of the running loop as text."""
    root = trio.lowlevel.current_root_task()
    tasks = [] if root is None else list(_family(root, 0))
    shown = [_described(task, depth) for task, depth in tasks[:TASKS_MAX]]
    if len(tasks) > TASKS_MAX:
        shown.append(f"and {len(tasks) - TASKS_MAX} more tasks")
    return "\n\n".join(shown) + "\n"


def _family(task: trio.lowlevel.Task, depth: int) -> Iterator[tuple[trio.lowlevel.Task, int]]:
    # A list rather than a recursion: tasks may be nested deeper than calls may.
    waiting = [(task, depth)]
    while waiting:
        task, depth = waiting.pop()
        yield task, depth
        children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        waiting += [(child, depth + 1) for child in reversed(children)]


def _described(task: trio.lowlevel.Task, depth: int) -> str:
    lines = [f"{'  ' * depth}{task.name}"]
    for number, (frame, line) in enumerate(task.iter_await_frames()):
        if number == FRAMES_MAX:
            lines.append("    ...")
            break
        code = frame.f_code
        lines.append(f"    at {code.co_qualname} ({code.co_filename}:{line})")
    return "\n".join(lines)
