"""Makes a copy of rmq that counts nothing for metrics, to measure what counting costs.

What is taken out is what stands on the way of a send for the sake of Prometheus alone. What
RocketMQ 4.9.8 counts too and its admin requests ask for stays: messages and bytes by topic, and
the bands of `putMessageDistributeTime`. A statement that is no longer there is an error, so that
this cannot go on measuring nothing.
"""

from __future__ import annotations

import ast
import shutil
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Removal(NamedTuple):
    """A statement of a function; None: all of the function."""

    path: str
    function: str
    statement: str | None


REMOVALS: Final = (
    # How requests were answered, and how long that took.
    Removal("rmq/remoting/request.py", "_count_answer", None),
    Removal("rmq/remoting/dispatch.py", "reply_all", "answered += 1"),
    Removal(
        "rmq/remoting/dispatch.py",
        "_finish_run",
        "first._counts.answered(_SUCCESS, channel.now() - first.since, answered)",
    ),
    # Sends: sizes, results, and how long their parts took.
    Removal("rmq/broker/handlers/send.py", "_put_plain", "took_s = self._clock() - self._started"),
    Removal(
        "rmq/broker/handlers/send.py", "_put_plain", "by_bits = self._send_stats.sizes.by_bits"
    ),
    Removal("rmq/broker/handlers/send.py", "_put_plain", "by_bits[(size - 1).bit_length()] += 1"),
    Removal(
        "rmq/broker/handlers/send.py",
        "_put_plain",
        "self._send_stats.appended(took_s, stored, len(waiting))",
    ),
    Removal("rmq/broker/handlers/send.py", "_count", "self._send_stats.sizes.sum += size_total"),
    Removal(
        "rmq/broker/handlers/send.py",
        "answer",
        "stats.ended(status, clock() - started, len(requests))",
    ),
    Removal(
        "rmq/broker/sending/acknowledgement.py",
        "flushed",
        "stats.flush.note(clock() - began, sends)",
    ),
    Removal(
        "rmq/broker/sending/acknowledgement.py",
        "replicated",
        "stats.replicate.note(clock() - began, sends)",
    ),
    Removal("rmq/store/flusher.py", "flush", "self.durations.note(trio.current_time() - began)"),
    # How late the event loop is.
    Removal("rmq/remoting/event_loop/lag.py", "note", "self.histogram.note(lag_s)"),
)


def copy_uncounted(root: Path, target: Path) -> None:
    """Copy `rmq` of a source tree into a folder, without what `REMOVALS` lists.

    Raises `LookupError` for a statement that is not there.
    """
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "rmq", target / "rmq", ignore=ignored)
    for path, source in uncounted_modules(root).items():
        (target / path).write_text(source)


def uncounted_modules(root: Path) -> dict[str, str]:
    """Return the modules that count, without that."""
    return {
        path: without(
            (root / path).read_text(), [removal for removal in REMOVALS if removal.path == path]
        )
        for path in dict.fromkeys(removal.path for removal in REMOVALS)
    }


def without(source: str, removals: Sequence[Removal]) -> str:
    """Return a module without some statements; raise `LookupError` if one is not there."""
    remover = _Remover(removals)
    changed = remover.visit(ast.parse(source))
    for removal in removals:
        if removal not in remover.done:
            raise LookupError(
                f"{removal.path} has no statement {removal.statement!r} in {removal.function}():"
                " adapt REMOVALS in benchmarks/metrics/uncounted.py"
            )
    return ast.unparse(ast.fix_missing_locations(changed)) + "\n"


@final
class _Remover(ast.NodeTransformer):
    """Puts `pass` in the place of statements."""

    def __init__(self, removals: Sequence[Removal]) -> None:
        self.done: set[Removal] = set()
        self._removals = removals
        self._functions: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._enter(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._enter(node)

    def _enter(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        if self._take(node.name, None):
            node.body = [ast.Pass()]
            return node
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()
        return node

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign) and self._functions:
            if self._take(self._functions[-1], ast.unparse(node)):
                return ast.Pass()
            return node
        visited: ast.AST = super().visit(node)
        return visited

    def _take(self, function: str, statement: str | None) -> bool:
        for removal in self._removals:
            if (removal.function, removal.statement) == (function, statement):
                self.done.add(removal)
                return True
        return False
