"""Topics that are created because a client sends to them.

A new topic is in its file before the message that asked for it is taken, so that no crash leaves
messages without a topic. The sends that want it wait here meanwhile, in the order they came.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from rmq.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.tables.writer import TableWriter
    from rmq.remoting.bodies import TopicConfig

logger = logging.getLogger(__name__)

CREATED_AT_ONCE: Final = 64
"""Topics that are created in one step: about 5 ms."""
WISHES_LEFT_MAX: Final = 512
"""Sends that go on in one step at the end: about 15 ms."""


class _Wish(NamedTuple):
    topic: str
    create: Callable[[], TopicConfig | None]
    then: Callable[[Exception | None], None]


@final
class TopicCreation:
    """Creates topics and calls back the sends that wait for them.

    What waits here is a deferred request, so the bounds of its handler group apply to it.
    """

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer
        self._wishes: list[_Wish] = []
        self._under_way: set[str] = set()
        self._unsaved: set[str] = set()
        """Topics that exist, but could not be written to their file so far."""
        self._wanted = trio.Event()

    def is_under_way(self, topic: str) -> bool:
        """Tell whether a topic is just being created: sends to it must wait here."""
        return topic in self._under_way

    def submit(
        self,
        topic: str,
        create: Callable[[], TopicConfig | None],
        then: Callable[[Exception | None], None],
    ) -> None:
        """Have `create` called, and `then` once its outcome is on disk, or with why it is not.

        If the topic is already being created for another send, that creation counts for both.
        """
        self._under_way.add(topic)
        self._wishes.append(_Wish(topic, create, then))
        self._wanted.set()

    async def run(self) -> None:
        """Create what is wanted, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            wishes, self._wishes = self._wishes, []
            errors = await self._create(wishes)
            made = {wish.topic for wish in wishes if wish.topic not in errors}
            self._unsaved |= made
            if made:
                try:
                    await self._writer.wait_saved(self._writer.mark())
                    self._unsaved -= made
                except StorageError as exc:
                    errors |= dict.fromkeys(made, exc)
            wishes = self._with_late(wishes, made)
            while len(wishes) > WISHES_LEFT_MAX:
                # The part is larger the more there are, so that they become fewer.
                count = len(wishes) // 2
                _call_back(wishes[:count], errors)
                await trio.lowlevel.checkpoint()
                wishes = self._with_late(wishes[count:], made)
            self._under_way = self._unsaved.union(wish.topic for wish in self._wishes)
            _call_back(wishes, errors)

    def _with_late(self, wishes: list[_Wish], made: set[str]) -> list[_Wish]:
        """Return wishes with those that came meanwhile for the same topics behind them.

        They have nothing more to wait for. If they waited for another pass, there would always be
        others behind them.
        """
        late = [wish for wish in self._wishes if wish.topic in made]
        if late:
            self._wishes = [wish for wish in self._wishes if wish.topic not in made]
        return wishes + late

    async def _create(self, wishes: list[_Wish]) -> dict[str, Exception | None]:
        """Create topics; return those that were not made, with the error if it was one."""
        not_made: dict[str, Exception | None] = {}
        for number, wish in enumerate(wishes, 1):
            if number % CREATED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            try:
                if wish.create() is None:
                    not_made[wish.topic] = None
                else:
                    not_made.pop(wish.topic, None)
            except Exception as exc:
                logger.exception("topic %s could not be created", wish.topic)
                not_made[wish.topic] = exc
        return not_made


def _call_back(wishes: list[_Wish], errors: dict[str, Exception | None]) -> None:
    for wish in wishes:
        try:
            wish.then(errors.get(wish.topic))
        except Exception:
            logger.exception("callback for the creation of topic %s raised", wish.topic)
