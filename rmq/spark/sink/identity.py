"""The identity of a row: a key and a message id that are the same whenever it is sent. Pure.

A row has the key `run/partition/row` in a batch write and `query/batch/partition/row` in a stream,
which travels with the message as the property SPARK_KEY. The rows of a task are numbered from 0 in
the order in which Spark hands them over. A task that is run again sends the same rows under the
same keys, if its input gives them in the same order again: topics, files and sorted tables do,
a shuffle without a sort does not.

The message id (UNIQ_KEY, the column `msgId`) follows from the key: a digest of everything before
the row, and the number of the row. It has the form of the ids that stock clients make, 16 bytes as
upper-case digits:

    10 bytes   digest; to its last 8 bytes is added how often the last field has been full
     2 bytes   0
     4 bytes   the number of the row, its low 32 bits

Stock tools take bytes 10 to 13 for the time of sending, in milliseconds since the month began, and
search a message from then on: here that is the first minute of the month. Only the last 8 digits
differ between rows, as in the ids of other clients, which makes them cheap for brokers to index.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPARK_KEY: Final = "SPARK_KEY"
SEPARATOR: Final = "/"
ID_CHARS: Final = 32

_DIGEST_BYTES: Final = 10
_OVERFLOW: Final = slice(2, 10)
_ROW: Final = slice(12, 16)
_HEX_PAIRS: Final = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint16)
"""The two digits of every byte."""


@final
class RowIdentity:
    """The keys and ids of the rows of one task."""

    def __init__(self, *parts: str | int) -> None:
        """`parts` are everything of the key before the row."""
        self.prefix = SEPARATOR.join(map(str, parts)) + SEPARATOR
        digest = hashlib.blake2b(self.prefix.encode(), digest_size=_DIGEST_BYTES).digest()
        self._fixed = np.zeros(ID_CHARS // 2, np.uint8)
        self._fixed[:_DIGEST_BYTES] = np.frombuffer(digest, np.uint8)
        self._last = int.from_bytes(digest[_OVERFLOW])

    def key(self, row: int) -> str:
        """Return the key of a row."""
        return f"{self.prefix}{row}"

    def ids(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the message ids of rows as characters, one id in each line."""
        packed = np.empty((len(rows), ID_CHARS // 2), np.uint8)
        packed[:] = self._fixed
        packed[:, _ROW] = (rows & 0xFFFFFFFF).astype(">u4").view(np.uint8).reshape(-1, 4)
        if len(rows) and rows.max() > 0xFFFFFFFF:
            overflow = np.uint64(self._last) + (rows >> 32).astype(np.uint64)
            packed[:, _OVERFLOW] = overflow.astype(">u8").view(np.uint8).reshape(-1, 8)
        return _HEX_PAIRS[packed].view(np.uint8)
