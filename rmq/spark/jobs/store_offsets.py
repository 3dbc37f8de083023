"""What the broker of a store wrote down about progress, in `config` below the store: how far groups
are (consumerOffset.json) and how far delayed messages were delivered (delayOffset.json).

Both are written every few seconds and when a broker stops. In place of a file that was cut off by a
crash the one before it counts, which brokers keep as `.bak`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from rmq.errors import CorruptStoreError, RmqError
from rmq.remoting.bodies import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from rmq.store.reader.files import translated

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.bodies import Body

B = TypeVar("B", bound="Body")

FILE_BYTES_MAX: Final = 256 * 1024 * 1024


def group_offsets(root: Path) -> dict[tuple[str, str], dict[int, int]] | None:
    """Return by topic and group where the group goes on in each queue; None if there is no file."""
    body = read_table(root / "config" / "consumerOffset.json", ConsumerOffsetSerializeWrapper)
    if body is None:
        return None
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    for key, table in body.offset_table.items():
        topic, sign, group = key.rpartition("@")
        if sign:
            offsets[topic, group] = dict(table)
    return offsets


def delay_offsets(root: Path) -> dict[int, int] | None:
    """Return by delay level the queue offset of the first message not yet delivered, or None."""
    body = read_table(root / "config" / "delayOffset.json", DelayOffsetSerializeWrapper)
    return None if body is None else dict(body.offset_table)


def read_table(path: Path, kind: type[B]) -> B | None:
    """Return a table of a broker, or the one before if it is cut off; None if there is neither.

    Raises `CorruptStoreError` if none of them can be read.
    """
    wrong: RmqError | None = None
    for candidate in (path, path.with_name(f"{path.name}.bak")):
        try:
            content = candidate.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise translated("read", candidate, exc) from exc
        try:
            return kind.decode(content, lenient_bytes_max=FILE_BYTES_MAX)
        except RmqError as exc:
            wrong = wrong or CorruptStoreError(str(candidate), str(exc))
    if wrong is not None:
        raise wrong
    return None
