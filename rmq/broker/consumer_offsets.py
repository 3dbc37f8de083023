"""How far each consumer group has read each queue.

Follows RocketMQ 4.9.8's ConsumerOffsetManager. Offsets are held by the text `topic@group`, which is
also how files and slaves know them: names with an `@` inside, which stock clients cannot have,
then still find what they stored, though nobody can tell which part of the text is the topic.

Committing and asking happen with every pull and cost two lookups. Nothing here does I/O; the file
is written from time to time when `changes` has moved.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from rmq.broker.table_order import OFFSETS_TABLE_SIZE, spread_hash, table_order
from rmq.model import fastjson
from rmq.remoting.bodies.offsets import ConsumerOffsetSerializeWrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

NO_OFFSET: Final = -1
"""The answer for a queue that a group has never committed."""

_SEPARATOR: Final = "@"
_INT32_MIN: Final = -(1 << 31)
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_FILE_BYTES_MAX: Final = 1 << 30
_OFFSETS_PER_PIECE: Final = 5000

_encode: Final = msgspec.json.Encoder().encode


class ConsumerOffsets:
    """All consumer offsets of one broker."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[int, int]] = {}  # none is empty
        # Tables whose queues do not ascend. They are sorted when they are next written: at every
        # commit it would cost the more, the more queues there are.
        self._unsorted: set[str] = set()
        self._hashes: dict[str, int] = {}
        self._names: dict[str, bytes] = {}  # as they begin in JSON
        self._order: list[str] | None = None
        self.changes = 0
        """Moves whenever an offset does."""

    def __len__(self) -> int:
        """Return the number of pairs of topic and group."""
        return len(self._tables)

    # --- one queue ---

    def commit(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store the offset at which a group goes on reading a queue.

        An offset below the stored one is stored all the same, and logged: a consumer may have been
        told to read again. `client_host` is for that log.
        """
        key = f"{topic}@{group}"
        table = self._tables.get(key)
        stored = None if table is None else table.get(queue_id)
        if stored == offset:
            return
        # What does not fit could be written, but neither we nor a stock broker could read it.
        if not _INT64_MIN <= offset <= _INT64_MAX:
            raise ValueError(f"consumer offset {offset} of {key} does not fit into 64 bits")
        if table is None or stored is None:
            self._add_queue(key, queue_id, offset)
        else:
            table[queue_id] = offset
            if offset < stored:
                logger.warning(
                    "consumer offset moved back by %s: %s, queue %d, from %d to %d",
                    client_host,
                    key,
                    queue_id,
                    stored,
                    offset,
                )
        self.changes += 1

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset at which a group goes on reading a queue; -1 if there is none."""
        table = self._tables.get(f"{topic}@{group}")
        return NO_OFFSET if table is None else table.get(queue_id, NO_OFFSET)

    def _add_queue(self, key: str, queue_id: int, offset: int) -> None:
        if not _INT32_MIN <= queue_id <= _INT32_MAX:
            raise ValueError(f"queue id {queue_id} of {key} does not fit into 32 bits")
        table = self._tables.get(key)
        if table is None:
            self._set_table(key, {queue_id: offset})
            return
        if queue_id < next(reversed(table)):
            self._unsorted.add(key)
        table[queue_id] = offset

    def _set_table(self, key: str, table: dict[int, int]) -> None:
        if key not in self._tables:
            self._hashes[key] = spread_hash(key)
            self._names[key] = fastjson.dumps(key) + b":"
            self._order = None
        self._tables[key] = dict(sorted(table.items()))
        self._unsorted.discard(key)

    def _sorted_table(self, key: str) -> dict[int, int] | None:
        if key in self._unsorted:
            self._set_table(key, self._tables[key])
        return self._tables.get(key)

    def _remove_table(self, key: str) -> None:
        del self._tables[key], self._hashes[key], self._names[key]
        self._unsorted.discard(key)
        self._order = None
        self.changes += 1

    # --- topics and groups ---

    def offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return the offsets of a group by the queues of a topic; a copy."""
        return dict(self._tables.get(f"{topic}@{group}", ()))

    def pairs(self) -> list[tuple[str, str]]:
        """Return topic and group of everything stored whose two names can be told apart."""
        return list(self._pairs(""))

    def topics_of(self, group: str) -> set[str]:
        """Return the topics of which a group has stored offsets."""
        return {topic for topic, _ in self._pairs(f"@{group}", at_end=True)}

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have stored offsets of a topic."""
        return {group for _, group in self._pairs(f"{topic}@")}

    def clone(self, source_group: str, target_group: str, topic: str) -> bool:
        """Let a group begin where another one is, forgetting where it was.

        Tells whether the other one has offsets of the topic; if not, nothing changes.
        """
        table = self._tables.get(f"{topic}@{source_group}")
        if table is None:
            return False
        self._set_table(f"{topic}@{target_group}", table)
        self.changes += 1
        return True

    def remove_group(self, group: str) -> int:
        """Forget a group; return of how many topics there were offsets."""
        topics = self.topics_of(group)
        for topic in topics:
            logger.warning("clean group offset %s@%s", topic, group)
            self._remove_table(f"{topic}@{group}")
        return len(topics)

    def remove_topic(self, topic: str) -> int:
        """Forget a topic; return of how many groups there were offsets."""
        groups = self.groups_of(topic)
        for group in groups:
            logger.warning("clean topic offset %s@%s", topic, group)
            self._remove_table(f"{topic}@{group}")
        return len(groups)

    def scan_unsubscribed(
        self,
        is_subscribed: Callable[[str, str], bool],
        first_offset: Callable[[str, int], int],
    ) -> list[tuple[str, str]]:
        """Forget what nobody reads any more; return the pairs of topic and group.

        Those are pairs that no client subscribes to (asked by group and topic) and whose messages
        are all gone: no offset is above the first one of its queue (asked by topic and queue).
        """
        gone = [
            (topic, group)
            for topic, group in self.pairs()
            if not is_subscribed(group, topic)
            and all(
                offset <= first_offset(topic, queue_id)
                for queue_id, offset in self._tables[f"{topic}@{group}"].items()
            )
        ]
        for topic, group in gone:
            logger.warning("remove topic offset, %s@%s", topic, group)
            self._remove_table(f"{topic}@{group}")
        return gone

    def min_offsets(
        self, topic: str, filter_groups: str | None, first_offset: Callable[[str, int], int]
    ) -> dict[int, int]:
        """Return by queue the lowest offset of any group that can still be read, for request 308.

        `filter_groups` are groups not to look at, with commas between them. A stock broker also
        deletes all offsets of those from its table, which is not repeated here. Nor is there a
        group to compare with: a stock broker looks for it by topic and group the wrong way round
        and never finds it.
        """
        skipped = set((filter_groups or "").split(","))
        lowest: dict[int, int] = {}
        for group in self.groups_of(topic) - skipped:
            for queue_id, offset in self._tables[f"{topic}@{group}"].items():
                if first_offset(topic, queue_id) <= offset:
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        return dict(sorted(lowest.items()))

    def _pairs(self, part: str, *, at_end: bool = False) -> Iterator[tuple[str, str]]:
        """Yield topic and group of the keys that have `part` at one end and one `@`."""
        for key in self._tables:
            if key.endswith(part) if at_end else key.startswith(part):
                topic, _, group = key.partition(_SEPARATOR)
                if group and _SEPARATOR not in group:
                    yield topic, group

    # --- the table as a whole ---

    def render(self) -> str:
        """Return the text of consumerOffset.json."""
        return "".join(self.render_pieces())

    def render_pieces(self) -> Iterator[str]:
        """Yield the text of consumerOffset.json in pieces of about a millisecond's work each.

        Offsets may be committed between pieces. The text then has some of those and not others,
        which is as good as having been written a moment earlier or later.
        """
        yield '{\n\t"offsetTable":{'
        is_first = True
        for rows in self._rows(b"\n\t\t", b"\n\t\t}"):
            yield rows.decode() if is_first else "," + rows.decode()
            is_first = False
        yield "}\n}" if is_first else "\n\t}\n}"

    def encode(self) -> bytes:
        """Return the table as the body of the answer to 43; what `to_body().encode()` gives."""
        return b'{"offsetTable":{%b}}' % b",".join(self._rows(b"", b"}"))

    def _rows(self, before: bytes, end: bytes) -> Iterator[bytes]:
        """Yield the members of the JSON object, some in each piece."""
        between = end + b"," + before
        rows: list[bytes] = []
        offsets = 0
        for key in self._keys_in_order():
            table = self._sorted_table(key)
            if table is None:  # removed since the first piece
                continue
            # The fastest way to write whole numbers. Those that are keys get quotes, and no others.
            rows.append(self._names[key] + _encode(table)[:-1].replace(b'"', b""))
            offsets += len(table) + 1
            if offsets >= _OFFSETS_PER_PIECE:
                yield before + between.join(rows) + end
                rows.clear()
                offsets = 0
        if rows:
            yield before + between.join(rows) + end

    def _keys_in_order(self) -> list[str]:
        if self._order is None:
            self._order = table_order(self._hashes, OFFSETS_TABLE_SIZE)
        return self._order

    def to_body(self) -> ConsumerOffsetSerializeWrapper:
        """Return a copy of all offsets, as slaves get them."""
        return ConsumerOffsetSerializeWrapper(
            offset_table={key: dict(self._sorted_table(key) or {}) for key in self._keys_in_order()}
        )

    def load(self, text: str) -> int:
        """Become what a consumerOffset.json says; return how many pairs of topic and group.

        Raises `MalformedJsonError` or `BodyError`, and then nothing has changed.
        """
        loaded = ConsumerOffsetSerializeWrapper.decode(
            text.encode(), lenient_bytes_max=_FILE_BYTES_MAX
        )
        self._tables.clear()
        self._hashes.clear()
        self._names.clear()
        self._unsorted.clear()
        self._order = None
        self.changes += 1
        self.merge(loaded)
        return len(self)

    def merge(self, body: ConsumerOffsetSerializeWrapper) -> None:
        """Take over what a master has; pairs that it does not know stay as they are."""
        for key, table in body.offset_table.items():
            if table and table != self._tables.get(key):
                self._set_table(key, table)
                self.changes += 1
