"""How far each consumer group has read each queue.

Follows RocketMQ 4.9.8's ConsumerOffsetManager. Offsets are held by the text `topic@group`, which is
also how files and slaves know them: names with an `@` inside, which stock clients cannot have,
then still find what they stored, though it is ambiguous which part of the text is the topic.

Committing and asking happen with every pull and cost two lookups. Nothing here does I/O; the file
is written from time to time when `changes` has moved.

A slave takes over what its master has (`merging`), and then an offset only ever grows: a master
that was restarted may have forgotten the last seconds, and 4.9.8 then sends its slave back, too.
Only what was moved on purpose goes back with it (`rmq.broker.tables.offset_resets`), and what lies
behind the place where the logs of two masters parted (`lower`, `set_back`): it is of the other log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from rmq.broker.tables.offset_parts import offsets_part
from rmq.broker.tables.offset_resets import OffsetResets
from rmq.broker.tables.offset_tables import OffsetTables
from rmq.broker.tables.offsets_body import SavedOffsets, SharedOffsets
from rmq.broker.tables.progress_trail import ProgressTrail
from rmq.broker.transactions.half import PROGRESS_KEYS, QUEUE_ID
from rmq.model.clock import system_ms
from rmq.model.limits import INT64_MAX, INT64_MIN
from rmq.model.offsets import ConsumerOffset, PhysicalOffset, QueueOffset
from rmq.remoting.bodies.offsets import ConsumerOffsetSerializeWrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from rmq.broker.tables.parts import Part, WantedPart

logger = logging.getLogger(__name__)

NO_OFFSET: Final = ConsumerOffset(-1)
"""The answer for a queue that a group has never committed."""

_SEPARATOR: Final = "@"
_FILE_BYTES_MAX: Final = 1 << 30
_MERGED_PER_STEP: Final = 1000
_KEYS_PER_STEP: Final = 2000
_COMPARED_PER_STEP: Final = 500


class ConsumerOffsets:
    """All consumer offsets of one broker."""

    def __init__(self, now_ms: Callable[[], int] = system_ms) -> None:
        self._stored = OffsetTables()
        self._tables = self._stored.by_key
        self._resets = OffsetResets(now_ms)
        self._trail = ProgressTrail()
        """How far transactions were checked, by place in `PROGRESS_KEYS`."""
        self._id = now_ms()
        self._ordered: dict[str, set[int]] = {}
        """Queues whose consumers were told to go back and have not done so yet."""
        self.changes = 0
        """Moves whenever an offset does."""

    def __len__(self) -> int:
        """Return the number of pairs of topic and group."""
        return len(self._tables)

    # --- one queue ---

    def commit(
        self, client_host: str, group: str, topic: str, queue_id: int, offset: ConsumerOffset
    ) -> None:
        """Store the offset at which a group goes on reading a queue.

        An offset below the stored one is stored, too, and logged: a consumer may have been
        told to read again. `client_host` is for that log. It counts as a reset if that was so
        (`order_reset`).
        """
        key = f"{topic}@{group}"
        table = self._tables.get(key)
        stored = None if table is None else table.get(queue_id)
        if stored == offset:
            return
        # What does not fit could be written, but neither we nor a stock broker could read it.
        if not INT64_MIN <= offset <= INT64_MAX:
            raise ValueError(f"consumer offset {offset} of {key} does not fit into 64 bits")
        if table is None or stored is None:
            self._stored.add_queue(key, queue_id, offset)
        else:
            table[queue_id] = offset
            if offset < stored:
                ordered = self._ordered.get(key, set())
                is_ordered = queue_id in ordered
                logger.log(
                    logging.INFO if is_ordered else logging.WARNING,
                    "consumer offset moved back by %s: %s, queue %d, from %d to %d",
                    client_host,
                    key,
                    queue_id,
                    stored,
                    offset,
                )
                if is_ordered:
                    ordered.remove(queue_id)
                    self._resets.note(key, (queue_id,))
        self.changes += 1

    def order_reset(self, group: str, topic: str, targets: Mapping[int, ConsumerOffset]) -> None:
        """Note that consumers are told to go on at these offsets, by queue.

        They do so later, and then with a commit like any other.
        """
        key = f"{topic}@{group}"
        table = self._tables.get(key, {})
        back = {queue for queue, offset in targets.items() if offset < table.get(queue, offset)}
        if back:
            self._ordered.setdefault(key, set()).update(back)

    def reset(
        self, client_host: str, group: str, topic: str, queue_id: int, offset: ConsumerOffset
    ) -> None:
        """Store an offset that was set on purpose, by an admin tool."""
        self.order_reset(group, topic, {queue_id: offset})
        self.commit(client_host, group, topic, queue_id, offset)

    def clamp(self, end_of: Callable[[str, int], QueueOffset]) -> int:
        """Move offsets behind the end of their queue to it (asked by topic and queue); count them.

        For a slave that becomes a master. Its old master may have had messages that this one never
        got: the next messages take their place in the queues, and consumers that go on behind it
        would never see them. It is a reset, so that the old master does the same once it is a
        slave.
        """
        return self._lower(end_of, is_reset=True)

    def lower(self, end_of: Callable[[str, int], QueueOffset]) -> int:
        """Move offsets behind the end of their queue to it, as `clamp` does; count them.

        For a slave whose master is another one than before: those are of a log that the present
        master may not have. It is no reset, for what the master says next is to count, and that
        includes what was consumed behind the ends here.
        """
        return self._lower(end_of, is_reset=False)

    def _lower(self, end_of: Callable[[str, int], QueueOffset], *, is_reset: bool) -> int:
        count = 0
        for topic, group in self.pairs():
            key = f"{topic}@{group}"
            table = self._tables[key]
            beyond = {
                queue_id: ConsumerOffset(end)
                for queue_id, offset in table.items()
                if offset > (end := end_of(topic, queue_id))
            }
            if beyond:
                logger.log(
                    logging.WARNING if is_reset else logging.INFO,
                    "consumer offsets of %s are beyond the queues and go back: %s",
                    key,
                    ", ".join(f"queue {q} from {table[q]} to {end}" for q, end in beyond.items()),
                )
                table.update(beyond)
                if is_reset:
                    self._resets.note(key, beyond)
                self.changes += 1
                count += len(beyond)
        return count

    def query(self, group: str, topic: str, queue_id: int) -> ConsumerOffset:
        """Return the offset at which a group goes on reading a queue; -1 if there is none."""
        table = self._tables.get(f"{topic}@{group}")
        return NO_OFFSET if table is None else table.get(queue_id, NO_OFFSET)

    def _remove_table(self, key: str) -> None:
        # A group that begins again begins lower, and slaves must follow.
        self._resets.note(key, self._tables[key])
        self._drop_table(key)

    def _drop_table(self, key: str) -> None:
        self._stored.drop(key)
        self._ordered.pop(key, None)
        self.changes += 1

    # --- topics and groups ---

    def offsets(self, group: str, topic: str) -> dict[int, ConsumerOffset]:
        """Return the offsets of a group by the queues of a topic; a copy."""
        return dict(self._tables.get(f"{topic}@{group}", ()))

    def pairs(self) -> list[tuple[str, str]]:
        """Return topic and group of everything stored whose two names can be told apart."""
        return list(self._pairs(""))

    def pairs_in_steps(self) -> Iterator[list[tuple[str, str]]]:
        """Yield what `pairs` returns, as many at a time as a step goes through."""
        for keys in self._keys_per_step():
            yield list(_pairs_with("", keys, at_end=False))

    def topics_of(self, group: str) -> set[str]:
        """Return the topics of which a group has stored offsets."""
        return {topic for topic, _ in self._pairs(f"@{group}", at_end=True)}

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have stored offsets of a topic."""
        return {group for _, group in self._pairs(f"{topic}@")}

    def finding_topics(self, group: str) -> Generator[None, None, set[str]]:
        """Return what `topics_of` does, in steps of about a millisecond."""
        pairs = yield from self._finding(f"@{group}", at_end=True)
        return {topic for topic, _ in pairs}

    def finding_groups(self, topic: str) -> Generator[None, None, set[str]]:
        """Return what `groups_of` does, in steps of about a millisecond."""
        pairs = yield from self._finding(f"{topic}@", at_end=False)
        return {group for _, group in pairs}

    def finding_topics_by_group(self) -> Generator[None, None, dict[str, list[str]]]:
        """Return the topics that each group has offsets of, in steps of about a millisecond."""
        topics: dict[str, list[str]] = {}
        for keys in self._keys_per_step():
            for key in keys:
                topic, _, group = key.partition(_SEPARATOR)
                topics.setdefault(group, []).append(topic)
            yield
        return topics

    def _finding(self, part: str, *, at_end: bool) -> Generator[None, None, list[tuple[str, str]]]:
        pairs: list[tuple[str, str]] = []
        for keys in self._keys_per_step():
            pairs += _pairs_with(part, keys, at_end=at_end)
            yield
        return pairs

    def _keys_per_step(self) -> Iterator[list[str]]:
        """Yield the keys there are now, as many at a time as a step goes through."""
        keys = list(self._tables)
        for start in range(0, len(keys), _KEYS_PER_STEP):
            yield keys[start : start + _KEYS_PER_STEP]

    def clone(self, source_group: str, target_group: str, topic: str) -> bool:
        """Set the offsets of a group to those of another one.

        Tells whether the other one has offsets of the topic; if not, nothing changes.
        """
        table = self._tables.get(f"{topic}@{source_group}")
        if table is None:
            return False
        key = f"{topic}@{target_group}"
        before = self._tables.get(key, {})
        back = [queue for queue, offset in before.items() if table.get(queue, NO_OFFSET) < offset]
        if back:
            self._resets.note(key, back)
        self._stored.set(key, table)
        self.changes += 1
        return True

    def remove_group(self, group: str, topics: Iterable[str] | None = None) -> int:
        """Forget a group; return of how many topics there were offsets.

        `topics` are those that `finding_topics` gave; without them, they are found at once.
        """
        wanted = self.topics_of(group) if topics is None else topics
        removed = [topic for topic in wanted if f"{topic}@{group}" in self._tables]
        for topic in removed:
            self._remove_table(f"{topic}@{group}")
        if removed:
            logger.info(
                "offsets of group %s removed: of %d topics, %s for one",
                group,
                len(removed),
                removed[0],
            )
        return len(removed)

    def remove_topic(self, topic: str) -> int:
        """Forget a topic; return of how many groups there were offsets."""
        groups = self.groups_of(topic)
        for group in groups:
            self._remove_table(f"{topic}@{group}")
        return len(groups)

    def finding_min_offsets(
        self, topic: str, filter_groups: str | None, first_offset: Callable[[str, int], QueueOffset]
    ) -> Generator[None, None, dict[int, ConsumerOffset]]:
        """Return by queue the lowest offset of any group that can still be read, for request 308.

        It takes steps of about a millisecond.
        `filter_groups` are groups to leave out, separated by commas. A stock broker also deletes
        all offsets of those from its table, which is not repeated here. Nor is there a group to
        compare with: a stock broker exchanges topic and group in its lookup and never finds it.
        """
        skipped = set((filter_groups or "").split(","))
        lowest: dict[int, ConsumerOffset] = {}
        groups = yield from self.finding_groups(topic)
        compared = 0
        for group in groups - skipped:
            for queue_id, offset in self._tables.get(f"{topic}@{group}", {}).items():
                if first_offset(topic, queue_id) <= offset:
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
                compared += 1
            if compared >= _COMPARED_PER_STEP:
                compared = 0
                yield
        return dict(sorted(lowest.items()))

    def _pairs(self, part: str, *, at_end: bool = False) -> Iterator[tuple[str, str]]:
        """Yield topic and group of the keys that have `part` at one end and one `@`."""
        return _pairs_with(part, self._tables, at_end=at_end)

    # --- how far transactions are checked ---

    def progress_rests_on(self, log_end: PhysicalOffset) -> None:
        """Note that transactions are checked as far as they are by what the log has below an end.

        To be called whenever that progress has moved.
        """
        if self._trail.note(log_end, self._progress()):
            self.changes += 1

    def begin_trail(self, log_end: PhysicalOffset) -> None:
        """Take the progress of a file that does not say on what it rests for that of a log that
        ends at `log_end`.
        """
        if not self._trail and self._progress():
            self.progress_rests_on(log_end)

    def set_back(self, log_end: PhysicalOffset, end_of: Callable[[str, int], QueueOffset]) -> None:
        """Forget what lies behind the end of a log that was cut there: offsets behind the ends of
        the queues (asked by topic and queue), and checks of transactions whose outcome is gone.

        The master says next how far groups are.
        """
        self.lower(end_of)
        left = self._trail.cut(log_end)
        if left is None:
            return
        before = self._progress()
        for place, key in enumerate(PROGRESS_KEYS):
            if place in left:
                self._stored.set(key, {QUEUE_ID: left[place]})
            elif key in self._tables:
                self._drop_table(key)
        self.changes += 1
        if left != before:
            logger.warning(
                "transactions are checked again from half message %d on, not from %d: the log was"
                " cut",
                left.get(0, 0),
                before.get(0, 0),
            )

    def _progress(self) -> dict[int, ConsumerOffset]:
        return {
            place: self._tables[key][QUEUE_ID]
            for place, key in enumerate(PROGRESS_KEYS)
            if QUEUE_ID in self._tables.get(key, ())
        }

    # --- the table as a whole ---

    def render(self) -> str:
        """Return the text of consumerOffset.json."""
        return "".join(self.render_pieces())

    def render_pieces(self) -> Iterator[str]:
        """Yield the text of consumerOffset.json in pieces of about a millisecond's work each.

        Offsets may be committed between pieces. The text then has some of those and not others,
        which is as good as having been written a moment earlier or later.
        """
        resets = self._resets.text("\n\t\t")
        yield '{\n\t"offsetTable":{'
        is_first = True
        keys: list[str] = []
        for _ in self._stored.ordering(keys):
            yield ""
        for rows in self._stored.rows(b"\n\t\t", b"\n\t\t}", keys=keys):
            yield rows.decode() if is_first else "," + rows.decode()
            is_first = False
        yield "}" if is_first else "\n\t}"
        if resets:
            yield f',\n\t"resets":{{{resets}\n\t}}'
        # Last: it may know more than the offsets above, but they must not be ahead of it.
        if self._trail:
            yield f',\n\t"trail":{{{_trail_text(self._trail)}\n\t}}'
        yield "\n}"

    def encode(self) -> bytes:
        """Return the table as the body of the answer to 43; what `to_body().encode()` gives."""
        return b"".join(self.encode_pieces())

    def encode_pieces(self, last: frozenset[str] = frozenset()) -> Iterator[bytes]:
        """Yield the answer to 43 in pieces of about a millisecond's work each.

        Offsets may be committed between pieces. Those of pairs in `last` come together, when all
        others have, so that they are of one moment.
        """
        # Numbers of resets come first, though they stand at the end: one that is too old is put
        # right by the next answer, one with an offset from before it would hide the reset.
        resets = self._resets.text("").encode()
        yield b'{"offsetTable":{'
        is_first = True
        keys: list[str] = []
        for _ in self._stored.ordering(keys):
            yield b""
        for rows in self._stored.rows(b"", b"}", last, keys):
            yield rows if is_first else b"," + rows
            is_first = False
        yield b'},"resets":{%b}}' % resets if resets else b"}}"

    def part(self, wanted: WantedPart, last: frozenset[str]) -> Generator[None, None, Part]:
        """Return a part of the answer to 43, in steps; pairs in `last` are in the last part."""
        return offsets_part(self._stored, self._resets, wanted, last, self._id)

    def to_body(self) -> ConsumerOffsetSerializeWrapper:
        """Return a copy of all offsets, as slaves get them."""
        tables = self._stored.copy()
        if not self._resets:
            return ConsumerOffsetSerializeWrapper(offset_table=tables)
        return SharedOffsets(offset_table=tables, resets=self._resets.table())

    def load(self, text: str) -> int:
        """Load the text of a consumerOffset.json; return how many pairs of topic and group.

        Raises `MalformedJsonError` or `BodyError`, and then nothing has changed.
        """
        loaded = SavedOffsets.decode(text.encode(), lenient_bytes_max=_FILE_BYTES_MAX)
        self._stored.clear()
        self._ordered.clear()
        self._resets.clear()
        self.changes += 1
        for key, table in loaded.offset_table.items():
            if table:
                self._stored.set(key, _as_offsets(table))
        for key, numbers in loaded.resets.items():
            self._resets.take(key, numbers)
        self._trail.load(loaded.trail)
        return len(self)

    def merge(self, body: ConsumerOffsetSerializeWrapper) -> None:
        """Apply the offsets of a master; see `merging`."""
        for _ in self.merging(body):
            pass

    def merging(
        self,
        body: ConsumerOffsetSerializeWrapper,
        *,
        is_possible: Callable[[str, int, ConsumerOffset], bool] | None = None,
    ) -> Generator[None, None, SharedOffsets]:
        """Apply the offsets of a master, in steps of about a millisecond's work each.

        Offsets grow, or become what was chosen by a reset. Pairs that the master does not know
        stay as they are. What is not possible (asked by `topic@group`, queue and offset) is left as
        it is here, and returned.
        """
        count = 0
        odd: dict[str, dict[int, int]] = {}
        for key, told in body.offset_table.items():
            taken = table = _as_offsets(told)
            if is_possible is not None and table != self._tables.get(key):
                left = {q: offset for q, offset in table.items() if not is_possible(key, q, offset)}
                if left:
                    odd[key] = dict(left)
                    taken = {q: offset for q, offset in table.items() if q not in left}
            if taken:
                self._merge_table(key, taken)
            count += 1 + len(table)
            if count >= _MERGED_PER_STEP:
                yield
                count = 0
        odd_resets: dict[str, dict[int, int]] = {}
        if isinstance(body, SharedOffsets):
            for key, numbers in body.resets.items():
                kept = odd.get(key, {})
                if kept:
                    odd_resets[key] = {q: number for q, number in numbers.items() if q in kept}
                newer = {q: number for q, number in numbers.items() if q not in kept}
                self._follow_resets(key, newer, _as_offsets(body.offset_table.get(key, {})))
                count += 1 + len(numbers)
                if count >= _MERGED_PER_STEP:
                    yield
                    count = 0
        return SharedOffsets(offset_table=odd, resets=odd_resets)

    def _merge_table(self, key: str, table: dict[int, ConsumerOffset]) -> None:
        mine = self._tables.get(key)
        if mine is None:
            self._stored.set(key, table)
        elif mine == table:
            return
        else:
            grown = {
                queue: offset
                for queue, offset in table.items()
                if (known := mine.get(queue)) is None or offset > known
            }
            if not grown:
                return
            if grown.keys() <= mine.keys():
                mine.update(grown)
            else:
                self._stored.set(key, mine | grown)
        self.changes += 1

    def _follow_resets(
        self, key: str, numbers: Mapping[int, int], table: Mapping[int, ConsumerOffset]
    ) -> None:
        """Believe a master where its number is larger than the one that is known here."""
        newer = self._resets.newer(key, numbers)
        if not newer:
            return
        mine = self._tables.get(key)
        if mine is not None:
            there = {queue: table[queue] for queue in newer if queue in table}
            left = {queue: offset for queue, offset in mine.items() if queue not in newer} | there
            if left:
                self._stored.set(key, left)
            else:
                self._drop_table(key)
        self._resets.take(key, newer)
        self.changes += 1


def _pairs_with(part: str, keys: Iterable[str], *, at_end: bool) -> Iterator[tuple[str, str]]:
    for key in keys:
        if key.endswith(part) if at_end else key.startswith(part):
            topic, _, group = key.partition(_SEPARATOR)
            if group and _SEPARATOR not in group:
                yield topic, group


def _as_offsets(table: dict[int, int]) -> dict[int, ConsumerOffset]:
    """Take the numbers that a file or another broker has for queues as the offsets they are."""
    return cast("dict[int, ConsumerOffset]", table)


def _trail_text(trail: ProgressTrail) -> str:
    """Return the members of a JSON object of it."""
    return ",".join(
        f"\n\t\t{end}:{{{','.join(f'{place}:{offset}' for place, offset in progress.items())}}}"
        for end, progress in trail.table().items()
    )
