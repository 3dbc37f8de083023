"""Topics that come into being because somebody sends to them.

A new topic is in its file before the message that asked for it is taken, so that no crash leaves
messages without a topic. The sends that want it wait here meanwhile, in the order they came.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, final

import trio

from rmq.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.persistence import Keeper
    from rmq.remoting.bodies import TopicConfig

logger = logging.getLogger(__name__)


class _Wish(NamedTuple):
    topic: str
    create: Callable[[], TopicConfig | None]
    then: Callable[[Exception | None], None]


@final
class TopicCreation:
    """Creates topics and calls back whoever waits for them.

    What waits here is a deferred request, so the bounds of its group hold for it.
    """

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._wishes: list[_Wish] = []
        self._under_way: set[str] = set()
        self._wanted = trio.Event()

    def is_under_way(self, topic: str) -> bool:
        """Tell whether a topic is just being created: who sends to it must queue up here."""
        return topic in self._under_way

    def submit(
        self,
        topic: str,
        create: Callable[[], TopicConfig | None],
        then: Callable[[Exception | None], None],
    ) -> None:
        """Have `create` called, and `then` once its outcome is on disk, or with why it is not."""
        self._under_way.add(topic)
        self._wishes.append(_Wish(topic, create, then))
        self._wanted.set()

    async def run(self) -> None:
        """Create what is wanted, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            wishes, self._wishes = self._wishes, []
            error: Exception | None = None
            mark: int | None = None
            for wish in wishes:
                if wish.create() is not None:
                    mark = self._keeper.mark()
            if mark is not None:
                try:
                    await self._keeper.wait_saved(mark)
                except StorageError as exc:
                    error = exc
            # Those who came meanwhile are behind these, and find the topic still under way.
            self._under_way = {wish.topic for wish in self._wishes}
            for wish in wishes:
                try:
                    wish.then(error)
                except Exception:
                    logger.exception("what waited for topic %s failed", wish.topic)
