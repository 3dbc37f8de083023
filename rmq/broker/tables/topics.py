"""The topics of a broker: what exists, and by which rules new ones are created.

Follows RocketMQ 4.9.8's TopicConfigManager. The table does no I/O: its owner puts a function into
`on_change` that has the file written and the nameservers informed. Time comes from a clock that is
passed in, and is only needed for the version.

Topics are immutable values. A caller that keeps what it derived from one compares `changes`, which
moves whenever anything here does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from rmq.broker.tables import topic_names
from rmq.broker.tables.topic_names import reply_topic
from rmq.broker.tables.versioned import FILE_BYTES_MAX, VersionedTable
from rmq.model.name_rules import topic_refusal
from rmq.model.names import (
    ALWAYS_SYSTEM_TOPICS,
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    OFFSET_MOVED_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    TRANSACTION_CHECK_MAX_TOPIC,
)
from rmq.model.topic_flags import (
    PERM_INHERIT,
    PERM_READ_WRITE,
    UNIT_FLAG,
    UNIT_SUB_FLAG,
)
from rmq.remoting.bodies.topics import TopicConfig, TopicConfigSerializeWrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

logger = logging.getLogger(__name__)

_SCHEDULE_TOPIC_QUEUES: Final = 18
_BENCHMARK_TOPIC_QUEUES: Final = 1024


class TopicSettings(Protocol):
    """The settings of a broker that its topics depend on."""

    @property
    def cluster_name(self) -> str: ...
    @property
    def broker_name(self) -> str: ...
    @property
    def default_topic_queues(self) -> int: ...
    @property
    def auto_create_topic(self) -> bool: ...
    @property
    def cluster_topic_enabled(self) -> bool: ...
    @property
    def broker_topic_enabled(self) -> bool: ...
    @property
    def trace_topic_enabled(self) -> bool: ...
    @property
    def trace_topic_name(self) -> str: ...


def topic_sys_flag(*, unit: bool = False, unit_sub: bool = False) -> int:
    """Return the sysFlag of a topic of unit mode, or of the retry topic of such a group."""
    return (UNIT_FLAG if unit else 0) | (UNIT_SUB_FLAG if unit_sub else 0)


class TopicTable(VersionedTable[TopicConfig]):
    """All topics of one broker by name."""

    def __init__(self, config: TopicSettings, now_ms: Callable[[], int]) -> None:
        super().__init__("topicConfigTable", now_ms)
        self._config = config
        built_in = _built_in_topics(config)
        for topic in built_in:
            self._put_quietly(topic.topic_name, topic)
        self.system_topics: frozenset[str] = ALWAYS_SYSTEM_TOPICS.union(
            topic.topic_name for topic in built_in
        )

    def reconfigure(self, config: TopicSettings) -> None:
        """Use other settings from now on; built-in topics stay what they were at the start.

        Only the one that others are created after is added when it is wanted and missing, because
        topics could not be created on demand without it.
        """
        self._config = config
        model = self.get(AUTO_CREATE_TOPIC)
        if config.auto_create_topic and (model is None or not model.perm & PERM_INHERIT):
            built_in = {topic.topic_name: topic for topic in _built_in_topics(config)}
            self._put(AUTO_CREATE_TOPIC, built_in[AUTO_CREATE_TOPIC])

    def is_system(self, topic: str) -> bool:
        """Tell whether a topic belongs to the broker: clients may not create or change it."""
        return topic in self.system_topics or topic.startswith(SYSTEM_TOPIC_PREFIX)

    is_send_forbidden = staticmethod(topic_names.is_send_forbidden)
    validate_topic = staticmethod(topic_refusal)

    # --- changing ---

    def put(self, config: TopicConfig) -> bool:
        """Create or update a topic; tell whether it differs from what was there.

        The version moves on even if it does not: a nameserver that has forgotten a topic takes it
        again only from a table with a version that it has not seen.
        """
        old = self.get(config.topic_name)
        if old is None:
            logger.info("create new topic %s", shown(config))
        else:
            logger.info("update topic, old %s, new %s", shown(old), shown(config))
        self._put(config.topic_name, config)
        return old != config

    def delete(self, topic: str) -> bool:
        """Remove a topic; tell whether it was there."""
        old = self._remove(topic)
        if old is None:
            logger.warning("delete topic config failed, topic %s does not exist", topic)
            return False
        logger.info("delete topic %s", shown(old))
        return True

    def create_on_send(
        self,
        topic: str,
        default_topic: str,
        default_topic_queues: int,
        sys_flag: int,
        producer: str = "",
    ) -> TopicConfig | None:
        """Return a topic that is sent to, made after `default_topic` if it is new.

        None if it may not be made: the topic named as its model must exist and be inheritable.
        """
        known = self.get(topic)
        if known is not None:
            return known
        model = self.get(default_topic)
        if model is None:
            logger.warning(
                "topic %s not created: the default topic %s does not exist, producer %s",
                topic,
                default_topic,
                producer,
            )
            return None
        if (
            default_topic == AUTO_CREATE_TOPIC
            and not self._config.auto_create_topic
            and model.perm != PERM_READ_WRITE
        ):
            # It is there because it was allowed once; clients that ask for it should see that it
            # no longer is.
            model = msgspec.structs.replace(model, perm=PERM_READ_WRITE)
            self._put_quietly(default_topic, model)
        if not model.perm & PERM_INHERIT:
            logger.warning(
                "topic %s not created: the default topic %s has perm %d, producer %s",
                topic,
                default_topic,
                model.perm,
                producer,
            )
            return None
        queues = max(min(default_topic_queues, model.write_queue_nums), 0)
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=model.perm & ~PERM_INHERIT,
            topic_sys_flag=sys_flag,
            topic_filter_type=model.topic_filter_type,
        )
        logger.info(
            "create new topic %s after %s, wanted by %s",
            shown(created),
            default_topic,
            producer or "a client",
        )
        self._put(topic, created)
        return created

    def create_on_send_back(
        self, topic: str, queues: int, perm: int = PERM_READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """Return a topic, made with these settings if it is new: for retries and dead letters."""
        known = self.get(topic)
        if known is not None:
            return known
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_sys_flag=sys_flag,
        )
        logger.info("create new topic %s", shown(created))
        self._put(topic, created)
        return created

    def create_transaction_check_max(self, queues: int = 1) -> TopicConfig:
        """Return the topic for half messages that were asked about too often."""
        return self.create_on_send_back(TRANSACTION_CHECK_MAX_TOPIC, queues)

    def update_order_topics(self, table: Mapping[str, str]) -> bool:
        """Make exactly the topics in `table` ordered ones; tell whether that changed any.

        The table is what a nameserver holds in its namespace ORDER_TOPIC_CONFIG.
        """
        changed = {
            name: msgspec.structs.replace(topic, order=name in table)
            for name, topic in self.items()
            if topic.order != (name in table)
        }
        for name, topic in changed.items():
            logger.info("update order topic config, topic %s, order %s", name, topic.order)
            self._put_quietly(name, topic)
        if changed:
            self._next_version()
            self.on_change(None)
        return bool(changed)

    # --- the table as a whole ---

    def to_body(self, permission: int | None = None) -> TopicConfigSerializeWrapper:
        """Return all topics, as slaves and nameservers get them.

        `permission` is the broker's own, for a registration: unless it allows both reading and
        writing, it stands in the place of every topic's.
        """
        topics = self._ordered()
        if permission is not None and is_restricted(permission):
            topics = {name: restricted(topic, permission) for name, topic in topics.items()}
        return TopicConfigSerializeWrapper(topic_config_table=topics, data_version=self.version)

    def some_to_body(self, names: Iterable[str], permission: int) -> TopicConfigSerializeWrapper:
        """Return some topics, as far as they are there, as nameservers get them."""
        topics = {name: topic for name in sorted(names) if (topic := self.get(name)) is not None}
        if is_restricted(permission):
            topics = {name: restricted(topic, permission) for name, topic in topics.items()}
        return TopicConfigSerializeWrapper(topic_config_table=topics, data_version=self.version)

    def load(self, text: str) -> int:
        """Take the topics of a topics.json on top of the built-in ones; return how many.

        Raises `MalformedJsonError` or `BodyError`, and then nothing has changed.
        """
        loaded = TopicConfigSerializeWrapper.decode(text.encode(), lenient_bytes_max=FILE_BYTES_MAX)
        return self._load(loaded.topic_config_table, loaded.data_version)

    def replacing(self, wrapper: TopicConfigSerializeWrapper) -> Generator[None, None, bool]:
        """Replace the topics by those of a master, prepared in steps and changed at once.

        The result tells whether there was anything to change.
        """
        return self._replacing(wrapper.topic_config_table, wrapper.data_version)


def shown(topic: TopicConfig) -> str:
    """Return a topic as readable text."""
    queues = f"{topic.read_queue_nums} to read, {topic.write_queue_nums} to write"
    return f"{topic.topic_name} (queues: {queues}; perm {topic.perm})"


def is_restricted(permission: int) -> bool:
    """Tell whether a broker is not both readable and writable."""
    return permission & PERM_READ_WRITE != PERM_READ_WRITE


def restricted(topic: TopicConfig, permission: int) -> TopicConfig:
    """Return a topic as a broker registers it that is not both readable and writable."""
    return TopicConfig(
        topic_name=topic.topic_name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=permission,
    )


def _built_in_topics(config: TopicSettings) -> list[TopicConfig]:
    """Return what a broker with these settings has from the start."""

    def topic(name: str, queues: int, perm: int = PERM_READ_WRITE) -> TopicConfig:
        return TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )

    def inheritable(*, is_open: bool) -> int:
        return PERM_INHERIT | (PERM_READ_WRITE if is_open else 0)

    topics = [topic(SELF_TEST_TOPIC, 1)]
    if config.auto_create_topic:
        topics.append(
            topic(AUTO_CREATE_TOPIC, config.default_topic_queues, inheritable(is_open=True))
        )
    topics += [
        topic(BENCHMARK_TOPIC, _BENCHMARK_TOPIC_QUEUES),
        topic(config.cluster_name, 16, inheritable(is_open=config.cluster_topic_enabled)),
        topic(config.broker_name, 1, inheritable(is_open=config.broker_topic_enabled)),
        topic(OFFSET_MOVED_TOPIC, 1),
        topic(SCHEDULE_TOPIC, _SCHEDULE_TOPIC_QUEUES),
    ]
    if config.trace_topic_enabled:
        topics.append(topic(config.trace_topic_name, 1))
    topics.append(topic(reply_topic(config.cluster_name), 1))
    return topics
