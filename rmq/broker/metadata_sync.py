"""A slave copies what its master keeps beside the log: topics, groups and how far all have come.

The requests are those of RocketMQ 4.9.8 SlaveSynchronize (21, 201, 43 and 45), every 10 s; at once
when there is a new master, and soon when the master says that something has changed. Each table is
copied on its own: what is wrong with one does not keep the others. And each is read whole before
the first change, so an answer that is cut off or makes no sense changes nothing.

- Topics and groups become what the master has, unless their version is the same.
- Consumer offsets only grow, but for resets (`rmq.broker.offset_resets`). 4.9.8 takes them as they
  are, and a master that comes back with an old file then sends all groups back.
- The progress of delayed messages and of transaction checks says that something was done whose
  outcome is in the master's log. Taken over before that part of the log is here, it would lose
  messages in a promotion. So it waits until the log has come as far as the master's was when it
  answered. Our masters say in the answer how far that is, stock ones are asked afterwards.

Files are not written here: tables tell their keepers that they have changed. Nor is anything known
of roles: whoever knows runs `run` while the broker is a slave, and before it becomes a master calls
`take_reached` and clamps consumer offsets to the ends of the queues.
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, final

import trio

from rmq.broker.offsets_body import LOG_END_FIELD, SharedOffsets, decode_in_steps
from rmq.broker.transactions.half import PROGRESS_PAIRS
from rmq.errors import RemoteProtocolError, ResponseError, RmqError
from rmq.remoting.bodies import (
    DelayOffsetSerializeWrapper,
    KVTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rmq.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from rmq.broker.config import LiveConfig
    from rmq.broker.consumer_offsets import ConsumerOffsets
    from rmq.broker.delay import DelayDelivery
    from rmq.broker.groups import GroupTable
    from rmq.broker.topics import TopicTable
    from rmq.remoting.bodies import Body
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 10.0
RETRY_S: Final = 2.0
"""After a copy that failed."""
NEWS_PAUSE_S: Final = 0.2
"""At least so long is left between two copies, however much changes."""
NEWS_PAUSE_SHARE: Final = 9.0
"""And at least so many times as long as the last one took, which is more when tables are large."""
TIMEOUT_S: Final = 10.0
"""More than the 3 s of 4.9.8: tables may be large, and nobody waits for them."""
LOOK_S: Final = 0.2
"""How often is looked whether the log has come as far as progress that waits for it."""
_THREAD_BYTES: Final = 16 * 1024
"""Larger bodies are read in a thread: should they need the tolerant rules, that takes long."""

T = TypeVar("T")
B = TypeVar("B", bound="Body")


class Table(enum.Enum):
    """What is copied."""

    TOPICS = "topics"
    GROUPS = "groups"
    OFFSETS = "consumer offsets"
    DELAYS = "delay offsets"


class TableStatus(NamedTuple):
    """How the copying of one table goes."""

    copied_at: float | None
    """When it was last like the master's, by the monotonic clock."""
    error: str | None
    """Why it is not now."""


class SyncStatus(NamedTuple):
    """How copying goes."""

    master: str | None
    tables: Mapping[Table, TableStatus]
    awaited_end: int | None
    """Where the log has to come to before the progress that was copied counts."""


@final
class MetadataSync:
    """Keeps the tables of a slave like those of its master."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        delay: DelayDelivery,
        client: RemotingClient,
    ) -> None:
        self._live = live
        self._log = store.core.log
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delay = delay
        self._client = client
        self._master: str | None = None
        self._last_master: str | None = None
        self._has_news = False
        self._woken = trio.Event()
        self._pointed = trio.Event()
        self._turn = trio.Lock()
        self._scope = trio.CancelScope()
        self._tables = dict.fromkeys(Table, TableStatus(None, None))
        self._checked: _Unreached[SharedOffsets] = _Unreached()
        """How far the master has checked transactions."""
        self._delivered: _Unreached[dict[int, int]] = _Unreached()
        """How far it has delivered delayed messages."""
        self._believes_checked = self._believes_delivered = False

    # --- notices -----------------------------------------------------------------------------

    @property
    def status(self) -> SyncStatus:
        awaited = [
            end for end in (self._checked.log_end, self._delivered.log_end) if end is not None
        ]
        return SyncStatus(self._master, dict(self._tables), min(awaited, default=None))

    def point_to(self, master_address: str | None) -> None:
        """Copy from this broker from now on, beginning at once; None: from nobody."""
        if master_address == self._live.current.address:
            # As a slave is told whose master has just been taken out of the nameserver by hand.
            master_address = None
        if master_address == self._master:
            return
        self._master = master_address
        if master_address is not None and master_address != self._last_master:
            self._last_master = master_address
            # It may have another log than the one before.
            self._checked.clear()
            self._delivered.clear()
        self._scope.cancel()
        self._pointed.set()
        self._woken.set()

    def news(self) -> None:
        """The master says that a table has changed."""
        self._has_news = True
        self._woken.set()

    def log_was_cut(self) -> None:
        """The end of the log was dropped, and what this broker had delivered went with it.

        So the master is believed next, though its progress may be behind the one known here.
        """
        self._checked.clear()
        self._delivered.clear()
        self._believes_checked = self._believes_delivered = True

    def take_reached(self) -> None:
        """Let progress count for which the log has what it rests on."""
        end = self._log.readable
        checked = self._checked.take(end)
        if checked is not None:
            self._offsets.merge(checked[1], as_they_are=self._believes_checked)
            self._believes_checked = False
        delivered = self._delivered.take(end)
        if delivered is not None:
            log_end, offsets = delivered
            self._delay.adopt(offsets, log_end, as_they_are=self._believes_delivered)
            self._believes_delivered = False

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

    async def sync_now(self) -> bool:
        """Copy everything once; tell whether all of it is like the master's now."""
        master = self._master
        if master is None:
            return False
        async with self._turn:
            self._has_news = False
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
        before = self._tables[table]
        try:
            await copy(master)
        except RmqError as exc:
            self._tables[table] = TableStatus(before.copied_at, str(exc))
            if before.error != str(exc):
                logger.warning("%s not copied from %s: %s", table.value, master, exc)
        else:
            self._tables[table] = TableStatus(trio.current_time(), None)
            if before.error is not None:
                logger.info("%s copied from %s", table.value, master)

    # --- one table each ----------------------------------------------------------------------

    async def _copy_topics(self, master: str) -> None:
        answer = await self._ask(master, RequestCode.GET_ALL_TOPIC_CONFIG)
        wrapper = await _decoded(TopicConfigSerializeWrapper, answer.body)
        if not wrapper.topic_config_table:
            raise RemoteProtocolError("the answer has no topics; every broker has some")
        if await _in_steps(self._topics.replacing(wrapper)):
            logger.info("%d topics copied from %s", len(self._topics), master)

    async def _copy_groups(self, master: str) -> None:
        answer = await self._ask(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        wrapper = await _decoded(SubscriptionGroupWrapper, answer.body)
        if not wrapper.subscription_group_table:
            raise RemoteProtocolError("the answer has no groups; every broker has some")
        if await _in_steps(self._groups.replacing(wrapper)):
            logger.info("%d groups copied from %s", len(self._groups), master)

    async def _copy_offsets(self, master: str) -> None:
        answer = await self._ask(master, RequestCode.GET_ALL_CONSUMER_OFFSET)
        body = await _in_steps(decode_in_steps(answer.body))
        checked, others = _split(body)
        with trio.CancelScope(shield=True):  # all of it, now that it has begun
            await _in_steps(self._offsets.merging(others))
        if checked.offset_table or checked.resets:
            self._checked.add(await self._log_end(master, answer), checked)
            self.take_reached()

    async def _copy_delays(self, master: str) -> None:
        answer = await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET)
        offsets = (await _decoded(DelayOffsetSerializeWrapper, answer.body)).offset_table
        self._delivered.add(await self._log_end(master, answer), offsets)
        self.take_reached()

    async def _log_end(self, master: str, answer: Command) -> int:
        """Return where the log of the master ended when it gave an answer, or a little later."""
        text = answer.ext_fields.get(LOG_END_FIELD)
        if text is None:
            info = await self._ask(master, RequestCode.GET_BROKER_RUNTIME_INFO)
            text = (await _decoded(KVTable, info.body)).table.get("commitLogMaxOffset", "")
        if not text.isascii() or not text.isdecimal():
            raise RemoteProtocolError(f"the master does not say where its log ends: {text[:40]!r}")
        return int(text)

    async def _ask(self, master: str, code: RequestCode) -> Command:
        # A stock master takes no notice of it.
        answer = await self._client.request(
            master, code, timeout_s=TIMEOUT_S, extra={LOG_END_FIELD: ""}
        )
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(master, code.name, answer.code, answer.remark)
        return answer


@final
class _Unreached(Generic[T]):
    """Values that wait until the log has come to an offset.

    Two at most: the one that counts first, and the last that came.
    """

    def __init__(self) -> None:
        self._first: tuple[int, T] | None = None
        self._last: tuple[int, T] | None = None

    @property
    def log_end(self) -> int | None:
        """What the first one waits for."""
        return None if self._first is None else self._first[0]

    def add(self, log_end: int, value: T) -> None:
        if self._first is None or log_end <= self._first[0]:
            self._first, self._last = (log_end, value), None
        else:
            self._last = (log_end, value)

    def take(self, log_end: int) -> tuple[int, T] | None:
        """Return the last one that counts by now, and keep those that do not."""
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


async def _decoded(kind: type[B], data: bytes | None) -> B:
    if data is None or len(data) <= _THREAD_BYTES:
        return kind.decode(data)
    return await trio.to_thread.run_sync(kind.decode, data)


async def _in_steps(steps: Generator[None, None, T]) -> T:
    """Do something that takes long, with others between its steps; return what comes of it."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await trio.lowlevel.checkpoint()
