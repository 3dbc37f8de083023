"""Queues that get their first message: their files are made in a thread, and sends wait meanwhile.

Making directories and a file can take as long as the disk is busy, and one client may send to
thousands of queues at once. So sends to a queue without a file rest here, in the order they came;
sends to all other queues go on. When the file is there they are stored, some at a time. While some
of a queue are left, what else is sent to it waits behind them.

If a file cannot be made, for lack of descriptors for example, the sends to its queue are refused.
In the log they would be messages that cannot be dispatched, and everything would wait for that.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.errors import StorageError
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

Place: TypeAlias = tuple[str, int]
"""A topic and a queue id."""

QUEUES_AT_ONCE: Final = 64
"""Queues whose files are made in one go: about 15 ms of a thread."""
SENDS_AT_ONCE: Final = 32
"""Sends that are stored in one step, those to one queue together: about 5 ms for as many queues."""
SENDS_LEFT_MAX: Final = 2_048
"""Sends to one queue that are stored in one step at the end, so that there is one: as long as some
are left, others come to wait behind them.
"""


@final
class QueueCreation(Generic[T]):
    """Keeps sends until the files of their queues are made.

    What waits here is a deferred request, so the bounds of its handler group apply to it.
    """

    def __init__(
        self,
        store: MessageStore,
        put: Callable[[list[T]], None],
        refuse: Callable[[list[T], str], None],
    ) -> None:
        """`put` stores and answers sends, `refuse` answers them with why they are not stored."""
        self._store = store
        self._put = put
        self._refuse = refuse
        self._failure = ""
        """Why files could not be made the last time."""
        self._waiting: dict[Place, list[T]] = {}
        self._wanted = trio.Event()

    def is_ready(self, topic: str, queue_id: int) -> bool:
        """Tell whether a message can be appended to a queue now."""
        return (topic, queue_id) not in self._waiting and self._store.has_queue_file(
            topic, queue_id
        )

    def submit(self, topic: str, queue_id: int, send: T) -> None:
        """Have a send stored when its queue has a file, and all that came before it."""
        waiting = self._waiting.get((topic, queue_id))
        if waiting is None:
            self._waiting[topic, queue_id] = [send]
            self._wanted.set()
        else:
            waiting.append(send)

    async def run(self) -> None:
        """Make files and store what waits for them, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            while self._waiting:
                places = list(itertools.islice(self._waiting, QUEUES_AT_ONCE))
                failure = await self._store.make_queues(places)
                if failure is not None:
                    self._refuse_without_file(places, failure)
                elif self._failure:
                    self._failure = ""
                    logger.info("files of new queues can be made again")
                await self._put_waiting(places)

    def _refuse_without_file(self, places: list[Place], failure: StorageError) -> None:
        """Answer what was sent to queues whose files could not be made."""
        why = f"{failure}; {failure.hint}" if failure.hint else str(failure)
        if why != self._failure:
            if not self._failure:
                logger.error("sends to new queues are refused: %s", why)
            self._failure = why
        for place in places:
            if not self._store.has_queue_file(*place):
                self._refuse(self._waiting.pop(place), why)

    async def _put_waiting(self, places: list[Place]) -> None:
        count = 0
        for place in places:
            if place not in self._waiting:
                continue
            while len(waiting := self._waiting[place]) > SENDS_LEFT_MAX:
                # The part is larger the more there are, so that they become fewer.
                some = waiting[: len(waiting) // 2]
                del waiting[: len(some)]
                self._put_guarded(some)
                await trio.lowlevel.checkpoint()
            count += len(waiting)
            self._put_guarded(self._waiting.pop(place))
            if count >= SENDS_AT_ONCE:
                count = 0
                await trio.lowlevel.checkpoint()

    def _put_guarded(self, sends: list[T]) -> None:
        try:
            self._put(sends)
        except Exception:
            # The others wait, too.
            logger.exception("%d sends to new queues could not be stored", len(sends))
