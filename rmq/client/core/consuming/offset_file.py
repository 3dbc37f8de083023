"""The file in which a consumer of broadcasts keeps its offsets, in the form of stock clients.

Path and format are those of RocketMQ 4.9.8 LocalFileOffsetStore: the file is
`~/.rocketmq_offsets/<client id>/<group>/offsets.json`, and holds a JSON object with one member,
`offsetTable`, whose keys are queues. A consumer can move from Java to Python and back, and goes on.

Methods of `LocalOffsetFile` block: call them in a thread.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

import msgspec

from rmq.errors import ConfigError, CorruptStoreError, ProtocolError, StorageError
from rmq.model import fastjson
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import Body
from rmq.remoting.header import Int64

logger = logging.getLogger(__name__)

FILE_NAME: Final = "offsets.json"


class LocalOffsets(Body, frozen=True, kw_only=True):
    """What the file says: OffsetSerializeWrapper of RocketMQ 4.9.8."""

    offset_table: dict[MessageQueue, Int64] = msgspec.field(default_factory=dict)


def local_offset_path(folder: Path, client_id: str, group: str) -> Path:
    """Return where a stock client of this id keeps the offsets of a group."""
    for key, name in (("client_id", client_id), ("group", group)):
        if not name or name in (".", "..") or "/" in name or os.sep in name or "\0" in name:
            raise ConfigError(key, f"{name!r} cannot name a folder")
    return folder / client_id / group / FILE_NAME


@final
class LocalOffsetFile:
    """The file of one consumer. The one before is kept beside it, as `offsets.json.bak`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup_path = path.with_name(path.name + ".bak")
        self._written: dict[MessageQueue, int] | None = None

    def read(self) -> dict[MessageQueue, int]:
        """Return what the file says; nothing if there is none.

        A file that cannot be understood, or is not there while the one before is, is replaced by
        the one before, with a warning. Raises `CorruptStoreError` if neither can be understood:
        starting without it would skip or repeat messages, so that is for an operator to decide.
        Raises `StorageError` if the files cannot be read.
        """
        content, problem = self._read_one(self.path)
        if content is not None:
            return content
        before, problem_before = self._read_one(self.backup_path)
        if before is not None:
            logger.warning("%s %s: the one before is used", self.path, problem or "is not there")
            return before
        if problem is None and problem_before is None:
            return {}
        raise CorruptStoreError(
            str(self.path),
            f"{problem or 'is not there'}; {self.backup_path.name}"
            f" {problem_before or 'is not there'}",
            hint="remove both files to let the consumer start as it is configured",
        )

    def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Replace what the file says, so that a crash leaves it or the one before whole.

        Raises `StorageError`.
        """
        if offsets == self._written and self.path.exists():
            return
        data = fastjson.pretty({"offsetTable": dict(sorted(offsets.items()))})
        fresh = self.path.with_name(self.path.name + ".tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if self.path.exists():
                self.path.replace(self.backup_path)
            fresh.replace(self.path)
        except OSError as exc:
            raise StorageError("write", str(self.path), exc.strerror or str(exc)) from exc
        self._written = dict(offsets)

    def _read_one(self, path: Path) -> tuple[dict[MessageQueue, int] | None, str | None]:
        """Return what a file says, or why that cannot be told; neither if it is not there."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None, None
        except OSError as exc:
            raise StorageError("read", str(path), exc.strerror or str(exc)) from exc
        if not data.strip():
            return None, "is empty"
        try:
            offsets = LocalOffsets.decode(data).offset_table
        except ProtocolError as exc:
            return None, f"cannot be understood: {exc}"
        return {queue: offset for queue, offset in offsets.items() if offset >= 0}, None
