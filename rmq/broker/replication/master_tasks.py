"""Tasks that only a master runs: delivery of delayed messages and checks of transactions.

They start and stop with the role. A slave that becomes master continues at the positions in the
tables that it copied from its last master.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from rmq.broker.delays.delivery import DelayDelivery
    from rmq.broker.pulling.parting import Parting
    from rmq.broker.replication.metadata_sync import MetadataSync
    from rmq.broker.tables.saved import Tables
    from rmq.broker.transactions.checks import TransactionChecks
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)


@final
class MasterTasks:
    """The master-only tasks of one broker."""

    def __init__(
        self,
        store: MessageStore,
        metadata: MetadataSync,
        tables: Tables,
        delay: DelayDelivery,
        transaction_checks: TransactionChecks,
        parting: Parting,
    ) -> None:
        self._store = store
        self.metadata = metadata
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._delay = delay
        self._transaction_checks = transaction_checks
        self._parting = parting

    async def run(self) -> None:
        """Run them until cancelled."""
        self._parting.go_on()
        self._delay.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._delay.run)
            nursery.start_soon(self._transaction_checks.run)

    def take_over(self) -> None:
        """Prepare a former slave to be master; its log is fully dispatched by now."""
        self.metadata.take_reached()
        self._offsets.clamp(self._store.queues.end_of)
        self._name_unknown_topics()
        self._parting.begin()

    def _name_unknown_topics(self) -> None:
        """Create a topic for each queue that has none. A master may die after it created a topic
        and its slave got the messages, but before the slave copied the topic itself.
        """
        queues_of: dict[str, int] = {}
        for queue in self._store.queues:
            queues_of[queue.topic] = max(queue.queue_id + 1, queues_of.get(queue.topic, 0))
        for topic, queues in sorted(queues_of.items()):
            if self._topics.get(topic) is None:
                logger.warning("created missing topic %s with %d queues", topic, queues)
                self._topics.create_on_send_back(topic, queues)

    def give_up(self) -> None:
        """Stop being master: `run` was cancelled, the store is flushed."""
        self._parting.end()
        if self._delay.is_started:
            self._delay.stop()

    def changes(self) -> int:
        """Return a number that changes with the tables that slaves copy."""
        return (
            self._topics.changes
            + self._groups.changes
            + self._offsets.changes
            + self._delay.changes
        )
