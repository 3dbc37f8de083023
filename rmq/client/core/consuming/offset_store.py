"""How far a consumer has come in its queues, in memory and where it outlives the consumer.

Members of a group share their offsets, which the brokers keep (`RemoteOffsetStore`). A consumer of
broadcasts has its own, in a file of its machine (`LocalOffsetStore`,
`rmq.client.core.consuming.offset_file`).

An offset never goes back, except where that is asked for. Pure.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final

from rmq.client.core.consuming.offsets import commit_offset, fetch_offset
from rmq.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.client.core.flows import Flow
    from rmq.client.core.routes import RouteTable
    from rmq.model.queues import MessageQueue

logger = logging.getLogger(__name__)


class OffsetTable:
    """Offsets by queue, in memory."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def get(self, queue: MessageQueue) -> int | None:
        """Return where the consumer goes on in a queue; None if that was not said yet."""
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Raise the offset of a queue; a lower one is ignored."""
        assert offset >= 0, f"offset {offset} of {queue} is below 0"
        if offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset of a queue, also to a lower one."""
        assert offset >= 0, f"offset {offset} of {queue} is below 0"
        self._offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset of a queue that was given up."""
        self._offsets.pop(queue, None)

    def offsets(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return all offsets, or those of a topic."""
        return {
            queue: offset
            for queue, offset in self._offsets.items()
            if topic is None or queue.topic == topic
        }


@final
class RemoteOffsetStore(OffsetTable):
    """Offsets of a group, which the brokers keep."""

    def __init__(self, routes: RouteTable, group: str) -> None:
        super().__init__()
        self._routes = routes
        self._group = group

    def load(self, queue: MessageQueue) -> Flow[int | None]:
        """Ask where the group goes on in a queue, and go by it; None: it was never there.

        Raises `ClientError` if that cannot be known now; see `rmq.client.core.consuming.offsets`.
        """
        offset = yield from fetch_offset(self._routes, self._group, queue)
        if offset is not None:
            self.reset(queue, offset)
        return offset

    def persist(
        self, queues: Iterable[MessageQueue] | None = None, *, is_oneway: bool = True
    ) -> Flow[dict[MessageQueue, ClientError]]:
        """Tell brokers where the group goes on: in these queues, or in all.

        Unchanged ones are told too: a broker may have lost what it was told one-way. Returns what
        failed; that is logged, and keeps no other queue from being told. With `is_oneway` False it
        is waited for that brokers have it.
        """
        failed: dict[MessageQueue, ClientError] = {}
        for queue in list(self._offsets) if queues is None else list(queues):
            offset = self._offsets.get(queue)
            if offset is None:
                continue
            try:
                yield from commit_offset(
                    self._routes, self._group, queue, offset, is_oneway=is_oneway
                )
            except ClientError as exc:
                failed[queue] = exc
                logger.warning(
                    "group %s: offset %d of %s was not stored: %s", self._group, offset, queue, exc
                )
        return failed


@final
class LocalOffsetStore(OffsetTable):
    """Offsets of one consumer of broadcasts, for a file.

    store = LocalOffsetStore(file.read())
    file.write(store.content(queues))
    """

    def __init__(self, content: Mapping[MessageQueue, int]) -> None:
        super().__init__()
        self._content = dict(content)

    def load(self, queue: MessageQueue) -> int | None:
        """Return where the consumer goes on in a queue by the file, and go by it."""
        offset = self._content.get(queue)
        if offset is not None:
            self.reset(queue, offset)
        return offset

    def content(self, queues: Iterable[MessageQueue] | None = None) -> dict[MessageQueue, int]:
        """Return what the file should say: these queues as they are now, or all; others as before.

        From then on `load` goes by it.
        """
        for queue in list(self._offsets) if queues is None else list(queues):
            if queue in self._offsets:
                self._content[queue] = self._offsets[queue]
        return dict(self._content)
