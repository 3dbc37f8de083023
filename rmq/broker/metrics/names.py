"""Which topics and groups have series, and how many may have.

Anyone who may send or pull can make names, and every one is a series that a Prometheus keeps for
weeks: their number is bounded. Names of topics and groups that are deleted have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.broker.tables.groups import BUILT_IN_GROUPS
from rmq.model.names import SYSTEM_GROUP_PREFIX

if TYPE_CHECKING:
    from rmq.broker.tables.groups import GroupTable
    from rmq.broker.tables.topics import TopicTable
    from rmq.metrics.families import Family, Sheet

TOPICS_MAX: Final = 5000
"""How many topics have series."""
PAIRS_MAX: Final = 5000
"""How many pairs of topic and group have series."""

_BUILT_IN: Final = frozenset(BUILT_IN_GROUPS)


@final
class Names:
    """The topics and groups of a broker."""

    def __init__(self, topics: TopicTable, groups: GroupTable) -> None:
        self._topics = topics
        self._groups = groups

    def has_topic(self, topic: str) -> bool:
        return topic in self._topics

    def has_group(self, group: str) -> bool:
        return group in self._groups

    def has_pair(self, topic: str, group: str) -> bool:
        # The broker itself reads under names that are not in the table.
        return topic in self._topics and (group in self._groups or is_system_group(group))

    def is_system(self, topic: str, group: str | None = None) -> str:
        """Tell whether a topic, or a group that reads it, is the broker's own, as a label."""
        is_own = self._topics.is_system(topic) or (group is not None and is_system_group(group))
        return "true" if is_own else "false"


def is_system_group(group: str) -> bool:
    return group.startswith(SYSTEM_GROUP_PREFIX) or group in _BUILT_IN


def put_unlisted(sheet: Sheet, unlisted: Family, family: Family, count: int) -> None:
    """Say how many series of a family are left out, if some are."""
    if count:
        sheet.put(unlisted, count, family.name)
