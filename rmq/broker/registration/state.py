"""The content of a registration, and what a broker knows about each nameserver."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

import trio

from rmq.broker.tables.topics import is_restricted
from rmq.remoting.bodies import RegisterBrokerBody
from rmq.steps import in_steps

if TYPE_CHECKING:
    from rmq.broker.config import BrokerConfig
    from rmq.broker.tables.topics import TopicTable
    from rmq.remoting.bodies import TopicConfigSerializeWrapper
    from rmq.remoting.channel import Channel


@final
class RegistrationBodies:
    """Encodes topics; all of them only once per change, for all nameservers."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics
        self._encoded: tuple[tuple[int, int, bool], bytes] | None = None

    async def of_all(self, config: BrokerConfig) -> bytes:
        """Return the registration of all topics, encoded in steps unless it is compressed, or the
        broker's permission stands in the place of the topics'.
        """
        if config.compressed_register or is_restricted(config.permission):
            key = (self._topics.changes, config.permission, config.compressed_register)
            if self._encoded is None or self._encoded[0] != key:
                wrapper = self._topics.to_body(config.permission)
                self._encoded = (key, _encode(config, wrapper))
            return self._encoded[1]
        topics = await in_steps(self._topics.encoding())
        return b'{"filterServerList":[],"topicConfigSerializeWrapper":%b}' % topics

    def of(self, config: BrokerConfig, changed: set[str]) -> bytes:
        """Return the registration of some topics, as far as they are still there."""
        return _encode(config, self._topics.some_to_body(changed, config.permission))


def _encode(config: BrokerConfig, wrapper: TopicConfigSerializeWrapper) -> bytes:
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=())
    return body.encode_compressed() if config.compressed_register else body.encode()


@final
class NameserverState:
    """What is known of one nameserver."""

    __slots__ = (
        "address",
        "changed",
        "failed",
        "failures",
        "is_being_told",
        "knows_epochs",
        "made_sure_at",
        "needs_all",
        "problem",
        "registered_over",
        "retry",
        "said_id",
        "succeeded",
        "told",
        "tried",
        "wanted",
        "woken",
    )

    def __init__(self, address: str) -> None:
        self.address = address
        self.woken = trio.Event()
        self.retry = trio.Event()
        """Set when a registration that failed may succeed by now."""
        self.tried = trio.Event()
        """Set when an attempt to register is over."""
        self.wanted = 0
        """Counts the changes that it has to get."""
        self.told = 0
        """The number of the last change that it got."""
        self.succeeded = 0
        """Registrations since the start that it took."""
        self.failed = 0
        """Registrations since the start that it did not take, or that did not reach it."""
        self.failures = 0
        """Registrations that failed since the last one that did not."""
        self.problem: str | None = None
        """Why the last registration failed, as it was logged."""
        self.changed: set[str] = set()
        """Changed topics that were not registered there yet."""
        self.needs_all = False
        """Whether more changed than that."""
        self.registered_over: Channel | None = None
        """The connection on which it was told everything else; it forgets with the connection."""
        self.is_being_told = False
        """A registration is under way."""
        self.said_id: int | None = None
        """Under which id it may list this broker."""
        self.knows_epochs = False
        """Whether it turns away masters of earlier epochs."""
        self.made_sure_at = -math.inf
        """When it last listed no other master."""

    def wake(self) -> None:
        self.woken.set()
