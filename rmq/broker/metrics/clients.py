"""Metrics of the clients of a broker: who is connected, and with what.

Only a present master shows them; a client is connected to the slave, too, and would count twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.broker.clients.versions import version_label
from rmq.broker.metrics.names import PAIRS_MAX, is_system_group, put_unlisted
from rmq.broker.metrics.traffic import UNLISTED
from rmq.metrics.families import Catalogue
from rmq.remoting.bodies.subscriptions import ConsumeType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmq.broker.clients.group_members import ClientInfo
    from rmq.broker.clients.registry import ClientRegistry
    from rmq.metrics.families import Sheet

CATALOGUE: Final = Catalogue()

PRODUCERS: Final = CATALOGUE.gauge(
    "rocketmq_producer_connections", "Connections of producers.", "language", "version"
)
CONSUMERS: Final = CATALOGUE.gauge(
    "rocketmq_consumer_connections",
    "Connections of consumers.",
    "consumer_group",
    "language",
    "version",
    "consume_mode",
    "is_system",
)
HELD: Final = CATALOGUE.gauge("rocketmq_pull_held_requests", "Pulls that wait for messages.")

_MODES: Final = {ConsumeType.CONSUME_PASSIVELY: "push", ConsumeType.CONSUME_ACTIVELY: "pull"}
UNKNOWN: Final = "unknown"
_MEMBERS_PER_STEP: Final = 500


@final
class ClientMetrics:
    """Shows who is connected."""

    catalogue: Final = CATALOGUE

    def __init__(
        self,
        clients: ClientRegistry,
        held: Callable[[], int],
        *,
        is_master: Callable[[], bool],
    ) -> None:
        self._clients = clients
        self._held = held
        self._is_master = is_master

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        sheet.put(HELD, self._held())
        if not self._is_master():
            return
        yield from self._put_producers(sheet)
        yield from self._put_consumers(sheet)

    def _put_producers(self, sheet: Sheet) -> Iterator[None]:
        # A client is in several groups by one connection.
        found: dict[tuple[str, str], set[object]] = {}
        seen = 0
        for group in list(self._clients.producer_groups.values()):
            for member in list(group.members.values()):
                found.setdefault(_kind(member), set()).add(member.channel)
            seen += 1 + len(group.members)
            if seen >= _MEMBERS_PER_STEP:
                seen = 0
                yield
        for kind, channels in found.items():
            sheet.put(PRODUCERS, len(channels), *kind)

    def _put_consumers(self, sheet: Sheet) -> Iterator[None]:
        seen = 0
        groups = list(self._clients.consumer_groups.values())
        put_unlisted(sheet, UNLISTED, CONSUMERS, max(0, len(groups) - PAIRS_MAX))
        for group in groups[:PAIRS_MAX]:
            found: dict[tuple[str, str], int] = {}
            for member in list(group.members.values()):
                kind = _kind(member)
                found[kind] = found.get(kind, 0) + 1
            mode = (
                UNKNOWN if group.consume_type is None else _MODES.get(group.consume_type, UNKNOWN)
            )
            is_system = "true" if is_system_group(group.name) else "false"
            for kind, count in found.items():
                sheet.put(CONSUMERS, count, group.name, *kind, mode, is_system)
            seen += 1 + len(group.members)
            if seen >= _MEMBERS_PER_STEP:
                seen = 0
                yield


def _kind(member: ClientInfo) -> tuple[str, str]:
    """Return language and version: words of a list each, whatever a client says."""
    language = UNKNOWN if member.language is None else member.language.name.lower()
    return language, version_label(member.version)
