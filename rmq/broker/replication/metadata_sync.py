"""Copies the tables of a master to its slave: topics, groups, consumer offsets, delay progress.

The requests are those of RocketMQ 4.9.8 SlaveSynchronize (21, 201, 43 and 45), every 10 s; at once
when there is a new master, and soon when the master announces a change. Each table is copied on its
own: a failure of one does not affect the others. Tables of any size are copied, in parts if the
master is one of ours (`rmq.broker.tables.parts`). Each response is decoded completely before the
first change, so one that is truncated or invalid changes nothing.

- Topics and groups are replaced by the master's, unless their version is the same, when all parts
  of one version have arrived. A table that changes faster than it can be copied is applied with its
  first version, and copied again soon.
- Consumer offsets only grow, except for resets (`rmq.broker.tables.offset_resets`), so each part is
  applied as it arrives. When a link begins in another epoch, offsets behind the ends of the queues
  here are set back first: they may be of a log that the master does not have. 4.9.8 applies offsets
  as they are, and a master that comes back with an old file then sets all groups back. Impossible
  offsets are rejected (`rmq.broker.tables.offset_bounds`).
- The progress of delayed messages and of transaction checks refers to results in the master's log.
  Applied before that part of the log is here, it would lose messages in a promotion. So it waits
  until the log has reached the end that the master's log had at its response. Our masters send that
  end with the response, stock ones are asked afterwards.

Tables are copied from the master at the other end of a native replication link (`trust`). Without
one, from the master that a nameserver lists (`point_to`), which every host can register as: so not
at all, if there is a secret (haSecret), which only the link can prove.

This module writes no files: tables mark their writers. It knows no roles either: `Replication` runs
`run` while the broker is a slave, and before it becomes master, `take_reached` is called and
consumer offsets are clamped to the ends of the queues.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import trio

from rmq.broker.replication.metadata_status import SyncStatus, Table, TableStatus
from rmq.broker.tables.offset_bounds import OffsetBounds
from rmq.broker.tables.offsets_body import LOG_END_FIELD, SharedOffsets, decode_in_steps
from rmq.broker.tables.parts import (
    BYTES_FIELD,
    FROM_FIELD,
    KNOWN_FIELD,
    NEXT_FIELD,
    PART_BYTES,
    SAME_FIELD,
)
from rmq.broker.transactions.half import PROGRESS_PAIRS
from rmq.errors import RemoteProtocolError, ResponseError, RmqError
from rmq.model.names import SCHEDULE_TOPIC
from rmq.model.offsets import ConsumerOffset, PhysicalOffset
from rmq.remoting.bodies import (
    DelayOffsetSerializeWrapper,
    KVTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.steps import in_steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from rmq.broker.config import LiveConfig
    from rmq.broker.delays.delivery import DelayDelivery
    from rmq.broker.tables.saved import Tables
    from rmq.remoting.bodies import Body
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 10.0
RETRY_S: Final = 2.0
"""Pause after a copy that failed."""
NEWS_PAUSE_S: Final = 0.2
"""Shortest pause between two copies, however much changes."""
NEWS_PAUSE_SHARE: Final = 9.0
"""The pause is also at least this many times as long as the last copy took."""
TIMEOUT_S: Final = 10.0
"""More than the 3 s of 4.9.8: tables may be large, and no request waits for them."""
LOOK_S: Final = 0.2
"""How often it is checked whether the log has reached the end that copied progress waits for."""
_SHOWN_MAX: Final = 3
_THREAD_BYTES: Final = 16 * 1024
"""Larger bodies are decoded in a thread: with the tolerant rules that may take long."""

PARTS_MAX: Final = 4096
"""Limit of parts of one table; real tables have far fewer."""
TABLE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Limit of topics or groups, which are kept in memory until complete: more than a million."""
RESTARTS_MAX: Final = 3
"""How often copying topics or groups starts over because they have changed meanwhile."""

T = TypeVar("T")
B = TypeVar("B", bound="TopicConfigSerializeWrapper | SubscriptionGroupWrapper")
E = TypeVar("E")
AnyBody = TypeVar("AnyBody", bound="Body")


@final
class MetadataSync:
    """Copies the tables of its master to a slave."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        tables: Tables,
        delay: DelayDelivery,
        client: RemotingClient,
    ) -> None:
        self._live = live
        self._store = store
        self._log = store.log
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._offsets_writer = tables.offsets_writer
        self._delay = delay
        self._client = client
        self._master: str | None = None
        """The broker that tables are copied from."""
        self._last_master: str | None = None
        self._named: str | None = None
        """The master that nameservers list."""
        self._linked: str | None = None
        """The master at the other end of the native link."""
        self._proven: str | None = None
        """The last master of a native link, also when the link has ended."""
        self._is_told_of_links = False
        self._was_native = False
        self._last_copy_from: str | None = None
        self._has_news = False
        self._woken = trio.Event()
        self._pointed = trio.Event()
        self._turn = trio.Lock()
        self._scope = trio.CancelScope()
        self._tables = dict.fromkeys(Table, TableStatus(None, None))
        self.failures = dict.fromkeys(Table, 0)
        """How many copies have failed since the start."""
        self._checked: _Unreached[SharedOffsets] = _Unreached()
        """How far the master has checked transactions."""
        self._delivered: _Unreached[dict[int, int]] = _Unreached()
        """How far it has delivered delayed messages."""
        self._has_joined = False
        """Whether consumer offsets behind the ends of queues are the present master's."""
        self._impossible: set[Table] = set()
        """Tables with rejected values that were logged."""

    # --- notices -----------------------------------------------------------------------------

    @property
    def status(self) -> SyncStatus:
        awaited = [
            end for end in (self._checked.log_end, self._delivered.log_end) if end is not None
        ]
        return SyncStatus(self._master, dict(self._tables), min(awaited, default=None))

    def why_not_current(self, now: float) -> str | None:
        """Return why the tables are not current; None if they are."""
        return self.status.why_not_current(now)

    def is_current(self, now: float) -> bool:
        """Return whether the tables are current."""
        return self.why_not_current(now) is None

    def point_to(self, master_address: str | None) -> None:
        """Set the master that nameservers list; None: there is none."""
        self._named = master_address
        self._choose()

    def trust(self, master_address: str | None, *, was_native: bool = False) -> None:
        """Note the master at the other end of a native link, as it names itself; None: there is
        no such link.

        With a secret that is the address in a welcome which was proven with it. With `was_native`
        masters of this name speak the native dialect: tables come over such a link or not at all.
        """
        self._was_native = was_native
        self._is_told_of_links = True
        self._linked = master_address or None
        if self._linked is not None:
            self._proven = self._linked
        self._choose()

    async def epoch_begins(self) -> None:
        """The master is of another epoch than the one before: its log may have parted from what
        that one said of its own.

        Call it before the log has any byte of that epoch and before the epoch is saved. Then an
        offset behind the end of its queue is of another log; later it could point into this one,
        at messages that its group has not seen.
        """
        self._has_joined = False
        self._checked.clear()
        self._delivered.clear()
        if self._offsets.lower(self._store.queues.end_of):
            await self._offsets_writer.save_now()

    def _join(self) -> None:
        """Have only those offsets behind the ends of the queues here that this master says next.

        Its log begins with the one here. What was consumed behind that, of another master or before
        this broker was started, may have been of another log.
        """
        self._has_joined = True
        self._offsets.lower(self._store.queues.end_of)

    def _choose(self) -> None:
        """Choose the broker to copy from, and start at once if it has changed."""
        config = self._live.current
        if self._linked is not None:
            master = self._linked
        elif (config.ha_secret or self._was_native) and self._is_told_of_links:
            master = None
        else:
            master = self._named
        if master == config.address:
            # A nameserver from which the master was just removed by hand lists this slave itself.
            master = None
        if master == self._master:
            return
        self._master = master
        if master is not None and master != self._last_master:
            self._last_master = master
            # It may have another log than the one before, and other tables.
            self._checked.clear()
            self._delivered.clear()
            self._tables = dict.fromkeys(Table, TableStatus(None, None))
        if self._last_copy_from is None or master is not None:
            self._scope.cancel()
        self._pointed.set()
        self._woken.set()

    def news(self) -> None:
        """Copy soon: the master announced that a table has changed."""
        self._has_news = True
        self._woken.set()

    def take_reached(self) -> None:
        """Apply the copied progress whose log end has been reached."""
        end = self._log.readable
        checked = self._checked.take(end)
        if checked is not None:
            log_end, progress = checked
            self._offsets.merge(progress)
            self._offsets.progress_rests_on(log_end)
        delivered = self._delivered.take(end)
        if delivered is not None:
            log_end, offsets = delivered
            self._delay.adopt(offsets, log_end)

    # --- tasks -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Copy again and again, until cancelled."""
        while True:
            self._pointed = trio.Event()
            if self._master is None:
                await self._pointed.wait()
                continue
            started = trio.current_time()
            is_complete = await self.sync_now()
            ended = trio.current_time()
            if is_complete:
                pause_s = min(NEWS_PAUSE_SHARE * (ended - started), INTERVAL_S)
                earliest = ended + max(NEWS_PAUSE_S, pause_s)
                await self._pause(earliest, max(earliest, started + INTERVAL_S))
            else:
                await self._pause(ended + RETRY_S, ended + RETRY_S)

    async def sync_last(self) -> bool:
        """Copy everything a last time from a master that has stepped down; return whether that
        succeeded.

        Its link may have ended by then: the last master of a link is asked.
        """
        master = self._master
        if master is None:
            master = self._proven
        self._last_copy_from = master
        try:
            return await self._sync(master)
        finally:
            self._last_copy_from = None

    async def sync_now(self) -> bool:
        """Copy everything once; return whether all copies succeeded."""
        return await self._sync(self._master)

    async def _sync(self, master: str | None) -> bool:
        if master is None:
            return False
        async with self._turn:
            self._has_news = False
            if master == self._linked and not self._has_joined:
                self._join()
            with trio.CancelScope() as self._scope:
                async with trio.open_nursery() as nursery:
                    for table, copy in (
                        (Table.TOPICS, self._copy_topics),
                        (Table.GROUPS, self._copy_groups),
                        (Table.OFFSETS, self._copy_offsets),
                        (Table.DELAYS, self._copy_delays),
                    ):
                        nursery.start_soon(self._try, table, copy, master)
            return not self._scope.cancelled_caught and not any(
                status.error for status in self._tables.values()
            )

    async def _pause(self, earliest: float, latest: float) -> None:
        """Wait until `latest`, or from `earliest` on until there is news; not with a new master."""
        while not self._pointed.is_set():
            self._woken = trio.Event()
            until = earliest if self._has_news else latest
            if trio.current_time() >= until:
                return
            if self.status.awaited_end is not None:
                until = min(until, trio.current_time() + LOOK_S)
            with trio.move_on_at(until):
                await self._woken.wait()
            self.take_reached()

    async def _try(self, table: Table, copy: Callable[[str], Awaitable[None]], master: str) -> None:
        before, started = self._tables[table], trio.current_time()
        try:
            await copy(master)
        except RmqError as exc:
            if master != self._last_master:
                return  # another master was chosen meanwhile
            self.failures[table] += 1
            failures = before.failures + 1
            self._tables[table] = before._replace(error=str(exc), failures=failures)
            if before.error != str(exc):
                logger.warning("%s not copied from %s: %s", table.value, master, exc.with_hint)
        else:
            if master != self._last_master:
                return
            now = trio.current_time()
            self._tables[table] = TableStatus(now, None, took_s=now - started)
            if before.error is not None:
                logger.info("%s copied from %s", table.value, master)

    # --- topics and groups -------------------------------------------------------------------

    async def _copy_topics(self, master: str) -> None:
        wrapper = await self._whole(
            master,
            RequestCode.GET_ALL_TOPIC_CONFIG,
            TopicConfigSerializeWrapper,
            lambda part: part.topic_config_table,
            self._topics.version_text,
        )
        if wrapper is None:
            return
        if not wrapper.topic_config_table:
            raise RemoteProtocolError("the answer has no topics; every broker has some")
        if await in_steps(self._topics.replacing(wrapper)):
            logger.info("%d topics copied from %s", len(self._topics), master)

    async def _copy_groups(self, master: str) -> None:
        wrapper = await self._whole(
            master,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            SubscriptionGroupWrapper,
            lambda part: part.subscription_group_table,
            self._groups.version_text,
        )
        if wrapper is None:
            return
        if not wrapper.subscription_group_table:
            raise RemoteProtocolError("the answer has no groups; every broker has some")
        if await in_steps(self._groups.replacing(wrapper)):
            logger.info("%d groups copied from %s", len(self._groups), master)

    async def _whole(
        self,
        master: str,
        code: RequestCode,
        kind: type[B],
        entries_of: Callable[[B], dict[str, E]],
        known: str,
    ) -> B | None:
        """Return a table whose parts are all of one version; None if the one here is the same.

        A table that changes again and again meanwhile is returned with the version of the first
        part, which the master's is not any longer: the next copy is made soon, and puts it right.
        """
        whole: B | None = None
        place, size, restarts = "", 0, 0
        for _ in range(PARTS_MAX):
            answer = await self._ask(master, code, place, {KNOWN_FIELD: known})
            if whole is None and SAME_FIELD in answer.ext_fields:
                return None
            part = await _decoded(kind, answer.body)
            if whole is None:
                whole = part
            elif part.data_version == whole.data_version:
                entries_of(whole).update(entries_of(part))
            elif restarts < RESTARTS_MAX:
                restarts += 1
                whole, place, size = None, "", 0
                continue
            else:
                entries_of(whole).update(entries_of(part))
                self._has_news = True
            place = answer.ext_fields.get(NEXT_FIELD, "")
            if not place:
                return whole
            size += len(answer.body or b"")
            if size > TABLE_BYTES_MAX:
                raise RemoteProtocolError(
                    f"the table is larger than {TABLE_BYTES_MAX} bytes; delete what is not used"
                )
        raise RemoteProtocolError(f"the table does not end within {PARTS_MAX} parts")

    # --- offsets -----------------------------------------------------------------------------

    async def _copy_offsets(self, master: str) -> None:
        place = ""
        impossible: list[str] = []
        for _ in range(PARTS_MAX):
            answer = await self._ask(master, RequestCode.GET_ALL_CONSUMER_OFFSET, place)
            body = await in_steps(decode_in_steps(answer.body))
            checked, others = _split(body)
            impossible += await self._merge(master, answer, others)
            if checked.offset_table or checked.resets:
                log_end = await self._log_end(master, answer)
                impossible += self._remove_impossible(checked, log_end)
                self._checked.add(log_end, checked)
                self.take_reached()
            place = answer.ext_fields.get(NEXT_FIELD, "")
            if not place:
                self._warn(Table.OFFSETS, master, impossible)
                return
            del impossible[_SHOWN_MAX:]
        raise RemoteProtocolError(f"the table does not end within {PARTS_MAX} parts")

    async def _merge(self, master: str, answer: Command, offsets: SharedOffsets) -> list[str]:
        """Apply offsets; return those that were rejected, as text."""
        is_told = LOG_END_FIELD in answer.ext_fields
        log_end = await self._log_end(master, answer) if is_told else None
        odd = await self._merge_possible(offsets, log_end)
        if odd.offset_table and log_end is None:
            # It may have written more than is here. Only then is a stock master asked how much.
            odd = await self._merge_possible(odd, await self._log_end(master, answer))
        return _shown(odd)

    async def _merge_possible(
        self, offsets: SharedOffsets, log_end: PhysicalOffset | None
    ) -> SharedOffsets:
        bounds = OffsetBounds(self._store, log_end)
        odd = SharedOffsets()
        with trio.CancelScope(shield=True):  # all of it, now that it has begun
            odd = await in_steps(self._offsets.merging(offsets, is_possible=bounds.allows))
        return odd

    def _remove_impossible(self, offsets: SharedOffsets, log_end: PhysicalOffset) -> list[str]:
        bounds = OffsetBounds(self._store, log_end)
        odd = {
            key: {
                q: offset
                for q, offset in table.items()
                if not bounds.allows(key, q, ConsumerOffset(offset))
            }
            for key, table in offsets.offset_table.items()
        }
        for key, queues in odd.items():
            for queue_id in queues:
                del offsets.offset_table[key][queue_id]
                offsets.resets.get(key, {}).pop(queue_id, None)
        return _shown(SharedOffsets(offset_table=odd))

    async def _copy_delays(self, master: str) -> None:
        answer = await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET)
        offsets = (await _decoded(DelayOffsetSerializeWrapper, answer.body)).offset_table
        log_end = await self._log_end(master, answer)
        bounds = OffsetBounds(self._store, log_end)
        impossible = [
            f"level {level}: {offset}"
            for level, offset in offsets.items()
            if not bounds.allows(SCHEDULE_TOPIC, level - 1, ConsumerOffset(offset))
        ]
        if impossible:
            raise RemoteProtocolError(
                f"the master cannot have delivered that many: {', '.join(impossible[:_SHOWN_MAX])}"
            )
        self._delivered.add(log_end, offsets)
        self.take_reached()

    def _warn(self, table: Table, master: str, impossible: list[str]) -> None:
        """Log rejected values of a table, once until none are left."""
        if not impossible:
            self._impossible.discard(table)
        elif table not in self._impossible:
            self._impossible.add(table)
            logger.warning(
                "%s of %s that are far beyond the ends of their queues are not taken over: %s;"
                " reset these groups at the master",
                table.value,
                master,
                ", ".join(impossible[:_SHOWN_MAX]),
            )

    # --- asking ------------------------------------------------------------------------------

    async def _log_end(self, master: str, answer: Command) -> PhysicalOffset:
        """Return the end of the master's log at the time of a response, or a little later."""
        text = answer.ext_fields.get(LOG_END_FIELD)
        if text is None:
            info = await self._ask(master, RequestCode.GET_BROKER_RUNTIME_INFO)
            text = (await _decoded(KVTable, info.body)).table.get("commitLogMaxOffset", "")
        if not text.isascii() or not text.isdecimal():
            raise RemoteProtocolError(f"the master does not say where its log ends: {text[:40]!r}")
        return PhysicalOffset(int(text))

    async def _ask(
        self,
        master: str,
        code: RequestCode,
        place: str = "",
        extra: Mapping[str, str] | None = None,
    ) -> Command:
        # A stock master takes no notice of any of these.
        fields = {LOG_END_FIELD: "", BYTES_FIELD: str(PART_BYTES), **(extra or {})}
        if place:
            fields[FROM_FIELD] = place
        answer = await self._client.request(master, code, timeout_s=TIMEOUT_S, extra=fields)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(master, code.name, answer.code, answer.remark)
        return answer


@final
class _Unreached(Generic[T]):
    """Values that wait until the log has reached an offset.

    Two at most: the first one due, and the latest.
    """

    def __init__(self) -> None:
        self._first: tuple[PhysicalOffset, T] | None = None
        self._last: tuple[PhysicalOffset, T] | None = None

    @property
    def log_end(self) -> PhysicalOffset | None:
        """The offset that the first value waits for."""
        return None if self._first is None else self._first[0]

    def add(self, log_end: PhysicalOffset, value: T) -> None:
        if self._first is None or log_end <= self._first[0]:
            self._first, self._last = (log_end, value), None
        else:
            self._last = (log_end, value)

    def take(self, log_end: PhysicalOffset) -> tuple[PhysicalOffset, T] | None:
        """Return the latest value that is due, and keep those that are not."""
        found = None
        while self._first is not None and self._first[0] <= log_end:
            found, self._first, self._last = self._first, self._last, None
        return found

    def clear(self) -> None:
        self._first = self._last = None


def _split(body: SharedOffsets) -> tuple[SharedOffsets, SharedOffsets]:
    """Return the broker's own progress, and the offsets of all others."""
    tables, resets = body.offset_table, body.resets
    own = SharedOffsets(
        offset_table={key: tables.pop(key) for key in PROGRESS_PAIRS & tables.keys()},
        resets={key: resets.pop(key) for key in PROGRESS_PAIRS & resets.keys()},
    )
    return own, body


def _shown(offsets: SharedOffsets) -> list[str]:
    """Return some of these offsets as text."""
    rows = (
        f"{key}, queue {queue_id}: {offset}"
        for key, table in offsets.offset_table.items()
        for queue_id, offset in table.items()
    )
    return list(islice(rows, _SHOWN_MAX))


async def _decoded(kind: type[AnyBody], data: bytes | None) -> AnyBody:
    if data is None or len(data) <= _THREAD_BYTES:
        return kind.decode(data)
    return await trio.to_thread.run_sync(kind.decode, data)
