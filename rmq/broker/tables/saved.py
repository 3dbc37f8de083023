"""What a broker keeps in `config/*.json`: its tables together, loaded, written and set back."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from rmq.broker.delays.file import progress_after_cut
from rmq.broker.sending.topic_creation import TopicCreation
from rmq.broker.tables.consumer_offsets import ConsumerOffsets
from rmq.broker.tables.groups import GroupTable
from rmq.broker.tables.topics import TopicTable
from rmq.broker.tables.writer import TableWriter
from rmq.files import ConfigFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.config import BrokerConfig
    from rmq.store.core import StoreCore


@final
class Tables:
    """Topics, groups and consumer offsets of a broker, their files, and what writes these."""

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], int]) -> None:
        folder = config.store.root / "config"
        self.topics = TopicTable(config, now_ms)
        self.groups = GroupTable(config, now_ms)
        self.offsets = ConsumerOffsets(now_ms)
        self.topics_file = ConfigFile(folder / "topics.json")
        self.groups_file = ConfigFile(folder / "subscriptionGroup.json")
        self.offsets_file = ConfigFile(folder / "consumerOffset.json")
        self.delays_file = ConfigFile(folder / "delayOffset.json")
        self.topics_writer = TableWriter(self.topics_file, self.topics.render_pieces, "topics")
        self.creation = TopicCreation(self.topics_writer)
        self.groups_writer = TableWriter(self.groups_file, self.groups.render_pieces, "groups")
        self.offsets_writer = TableWriter(
            self.offsets_file,
            self.offsets.render_pieces,
            "consumer offsets",
            changes=lambda: self.offsets.changes,
        )

    def load(self) -> None:
        """Read the files. Blocks; raises `ConfigError` or `StorageError`."""
        self.topics_file.load(self.topics.load)
        self.groups_file.load(self.groups.load)
        self.offsets_file.load(self.offsets.load)

    def follow_cut(self, core: StoreCore) -> None:
        """Go back to where the log ends, durably: its end was cut off, and what rests on that must
        not count any longer. Blocks; raises as `load` does.
        """
        log_end = core.log.written
        self.offsets.set_back(log_end, core.queues.end_of)
        self.offsets_file.write(self.offsets.render())
        delays = self.delays_file.load(lambda text: progress_after_cut(text, log_end))
        if delays is not None:
            self.delays_file.write(delays)
