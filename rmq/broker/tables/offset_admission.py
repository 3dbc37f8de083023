"""Whether a group may begin to have an offset of a queue. Pure.

RocketMQ 4.9.8 stores whatever is committed, also for topics and groups that do not exist, and keeps
it for ever: 100,000 commits of groups that do not exist took 124 MiB. Here an offset that goes on
from another one is always stored, and the first one of a queue if

- the topic exists on this broker, and has the queue;
- the group exists, or has connected clients. For other groups of legal names there is room for
  `STRANGERS_MAX` offsets: operators may set an offset before a group begins (`mqadmin
  resetOffsetByTime`), and consumers may commit before their first heartbeat.

Clients commit one-way, so they do not see a refusal, and commit again 5 s later. Tools do see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.errors import RefusedError
from rmq.model.name_rules import group_refusal
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.tables.groups import GroupTable
    from rmq.broker.tables.topics import TopicTable

STRANGERS_MAX: Final = 10_000
"""Offsets of groups that do not exist, counted since the start; some 12 MB."""


@final
class OffsetAdmission:
    """Knows which topics and groups there are, and counts offsets of groups that do not exist."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        is_connected: Callable[[str], bool],
        *,
        strangers_max: int = STRANGERS_MAX,
    ) -> None:
        """`is_connected` tells whether a group has consumers."""
        self._topics = topics
        self._groups = groups
        self._is_connected = is_connected
        self._strangers_max = strangers_max
        self._strangers: set[tuple[str, str, int]] = set()
        self._groups_seen = groups.changes

    def check(self, group: str, topic: str, queue_id: int) -> None:
        """Raise `RefusedError` if the first offset of a queue may not be stored."""
        config = self._topics.get(topic)
        if config is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic[:200]}] not exist, so offsets of it are not stored",
            )
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= queue_id < queues:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic} has {queues} queues and no queue {queue_id}",
            )
        if group in self._groups:
            return
        reason = group_refusal(group)
        if reason is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, reason)
        if self._is_connected(group):
            return
        if len(self._strangers) >= self._strangers_max:
            self._forget_known()
        if len(self._strangers) >= self._strangers_max:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"there is no group {group}, and offsets of {self._strangers_max} queues are stored"
                " for groups that do not exist; create it first (mqadmin updateSubGroup)",
            )
        self._strangers.add((group, topic, queue_id))

    def _forget_known(self) -> None:
        """Count those no longer whose group exists by now."""
        if self._groups_seen != self._groups.changes:
            self._groups_seen = self._groups.changes
            self._strangers = {each for each in self._strangers if each[0] not in self._groups}
