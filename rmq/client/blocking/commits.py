"""Commits the offsets of a blocking consumer.

An offset counts as committed when the broker has acknowledged it. Periodic commits are started when
due and proceed while the consumer waits for messages.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, final

from rmq.client.core.consuming.offsets import commit_offset
from rmq.errors import BrokersFailedError, ClientError, NoRouteError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.client.blocking.client import BlockingClient
    from rmq.client.blocking.runner import Task
    from rmq.model.queues import MessageQueue

logger = logging.getLogger(__name__)

_monotonic = time.monotonic


@final
class Commits:
    """The committed offsets of one consumer, and the commits in flight."""

    def __init__(self, client: BlockingClient, group: str, *, interval_s: float) -> None:
        self._client = client
        self._group = group
        self._interval_s = interval_s
        self._due_at = _monotonic() + interval_s
        self._known: dict[MessageQueue, int] = {}
        self._under_way: dict[MessageQueue, tuple[int, Task[None]]] = {}

    def assume(self, places: Mapping[MessageQueue, int]) -> None:
        """Regard these offsets as committed, and forget commits in flight.

        After a fork they belong to the parent process.
        """
        self._known = dict(places)
        self._under_way.clear()

    def commit(self, places: Mapping[MessageQueue, int]) -> None:
        """Commit places; raise `BrokersFailedError` naming those that could not be.

        A topic that no broker has does not keep others from being committed.
        """
        missing: dict[str, NoRouteError] = {}
        for topic in {queue.topic for queue in places}:
            try:
                self._client.route(topic)
            except NoRouteError as exc:
                missing[topic] = exc
        failures: list[tuple[str, ClientError]] = [
            (_name(queue), missing[queue.topic]) for queue in places if queue.topic in missing
        ]
        done: list[str] = []
        wanted = {queue: at for queue, at in places.items() if queue.topic not in missing}
        for queue, task in self._start(wanted).items():
            try:
                self._client.wait(task)
            except ClientError as exc:
                failures.append((_name(queue), exc))
            else:
                done.append(_name(queue))
                self._known[queue] = places[queue]
        if failures:
            raise BrokersFailedError(f"offsets of group {self._group}", failures, done)

    def commit_when_due(self, places: Mapping[MessageQueue, int]) -> None:
        """Start to commit changed offsets if the commit interval is over."""
        if self._under_way:
            self._take_in()
        now = _monotonic()
        if now < self._due_at:
            return
        self._due_at = now + self._interval_s
        changed = self._changed(places)
        for queue, task in self._start(changed).items():
            self._under_way[queue] = (changed[queue], task)

    def commit_at_last(self, places: Mapping[MessageQueue, int], *, timeout_s: float) -> None:
        """Commit changed offsets before closing; log those that fail or take too long."""
        until = _monotonic() + timeout_s
        changed = self._changed(places)
        tasks = self._start(changed)
        while any(not task.is_done for task in tasks.values()) and _monotonic() < until:
            self._client.connections.step(until)
        for queue, task in tasks.items():
            if not task.is_done:
                task.cancel()
            self._end(queue, changed[queue], task)

    def _changed(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        return {
            queue: offset
            for queue, offset in places.items()
            if self._known.get(queue) != offset and queue not in self._under_way
        }

    def _start(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, Task[None]]:
        client = self._client
        return {
            queue: client.start(
                commit_offset(client.routes, self._group, queue, offset, is_oneway=False)
            )
            for queue, offset in places.items()
        }

    def _take_in(self) -> None:
        for queue, (offset, task) in list(self._under_way.items()):
            if task.is_done:
                del self._under_way[queue]
                self._end(queue, offset, task)

    def _end(self, queue: MessageQueue, offset: int, task: Task[None]) -> None:
        try:
            task.result()
        except ClientError as exc:
            logger.warning(
                "group %s: offset %d of %s was not committed: %s", self._group, offset, queue, exc
            )
        else:
            self._known[queue] = offset


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name} {queue.queue_id}"
