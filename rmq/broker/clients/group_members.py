"""Producer and consumer groups as the broker sees them: their members and subscriptions.

A member is one client in one group over one connection. A client process has one connection to a
broker and is a member of several groups through it.

The rules are those of RocketMQ 4.9.8 ConsumerGroupInfo and ProducerManager. Nothing here does I/O
or knows the time; only `ClientRegistry` changes these objects.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import msgspec

from rmq.model import fastjson
from rmq.remoting.bodies.subscriptions import ConsumeType
from rmq.remoting.codes import LanguageCode

if TYPE_CHECKING:
    from collections.abc import Sequence, ValuesView

    from rmq.remoting.bodies.heartbeat import ConsumerData
    from rmq.remoting.bodies.subscriptions import (
        ConsumeFromWhere,
        MessageModel,
        SubscriptionData,
    )
    from rmq.remoting.channel import Channel

logger = logging.getLogger(__name__)

_PICK_TRIES: Final = 4
_SHOWN_MAX: Final = 8


class ClientIdentity(msgspec.Struct, frozen=True):
    """What a client says about itself."""

    client_id: str
    language: LanguageCode | None
    """None for one that 4.9.8 does not know."""
    version: int
    """An ordinal of MQVersion; features of the client depend on it."""
    client_id_json: bytes = b""
    """The id as JSON, for lists of members: made once for all groups of the client."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "client_id_json", fastjson.dumps(self.client_id))


@final
class ClientInfo:
    """One member of one group."""

    __slots__ = (
        "channel",
        "client_id",
        "client_id_json",
        "group",
        "language",
        "last_update",
        "version",
    )

    def __init__(
        self, group: ConsumerGroupInfo | ProducerGroup, channel: Channel, client: ClientIdentity
    ) -> None:
        self.group = group
        self.channel = channel
        self.client_id = client.client_id
        self.client_id_json = client.client_id_json
        self.language = client.language
        self.version = client.version
        self.last_update = 0.0
        """When the member was last heard of, in seconds of the monotonic clock."""

    def __repr__(self) -> str:
        return f"<{self.client_id} {self.channel.peer} in {self.group.name}>"


@final
class ProducerGroup:
    """The connected producers of a group."""

    __slots__ = ("_channels", "_turn", "members", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[Channel, ClientInfo] = {}
        self._channels: tuple[Channel, ...] | None = None
        self._turn = 0

    @property
    def channels(self) -> tuple[Channel, ...]:
        if self._channels is None:
            self._channels = tuple(self.members)
        return self._channels

    def pick(self) -> Channel | None:
        """Return a connection to ask about a transaction, members taking turns.

        One that does not read what we write is skipped, if there is another nearby.
        """
        channels = self.channels
        fallback: Channel | None = None
        for _ in range(min(_PICK_TRIES, len(channels))):
            self._turn = (self._turn + 1) % len(channels)
            channel = channels[self._turn]
            if not channel.is_open:
                continue
            if not channel.blocked:
                return channel
            fallback = channel
        return fallback

    def add(self, member: ClientInfo) -> None:
        self.members[member.channel] = member
        self._channels = None

    def remove(self, member: ClientInfo) -> None:
        del self.members[member.channel]
        self._channels = None


@final
class ConsumerGroupInfo:
    """The connected consumers of a group and what the group subscribes to.

    The last heartbeat of any member speaks for the whole group: topics it does not name are dropped
    (members that subscribe to different topics undo each other, as with a stock broker).
    """

    __slots__ = (
        "_channels",
        "_client_ids",
        "_member_list",
        "consume_from_where",
        "consume_type",
        "members",
        "message_model",
        "name",
        "subscriptions",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[Channel, ClientInfo] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        """By topic."""
        self.consume_type: ConsumeType | None = None
        self.message_model: MessageModel | None = None
        self.consume_from_where: ConsumeFromWhere | None = None
        self._channels: tuple[Channel, ...] | None = None
        self._client_ids: tuple[str, ...] | None = None
        self._member_list: bytes | None = None

    # ---- what others ask -------------------------------------------------------------------------

    @property
    def channels(self) -> tuple[Channel, ...]:
        if self._channels is None:
            self._channels = tuple(self.members)
        return self._channels

    @property
    def clients(self) -> ValuesView[ClientInfo]:
        return self.members.values()

    def subscription(self, topic: str) -> SubscriptionData | None:
        return self.subscriptions.get(topic)

    def client_ids(self) -> tuple[str, ...]:
        """Return the ids of the members, each once.

        A client that dialled again may still have its old connection here. A stock broker names it
        twice then, and the queues dealt to its double rest until the old connection expires.
        """
        if self._client_ids is None:
            self._client_ids = tuple(
                dict.fromkeys(member.client_id for member in self.members.values())
            )
        return self._client_ids

    def member_list(self) -> bytes:
        """Return the ids as clients ask for them at every rebalance, encoded once per change."""
        if self._member_list is None:
            # In the order of `client_ids`, each once.
            ids = dict.fromkeys([member.client_id_json for member in self.members.values()])
            self._member_list = b'{"consumerIdList":[%b]}' % b",".join(ids)
        return self._member_list

    def find_client(self, client_id: str | None) -> ClientInfo | None:
        """Return the member with an id: the one that came last, should there be several."""
        for member in reversed(self.members.values()):
            if member.client_id == client_id:
                return member
        return None

    # ---- what the registry does ------------------------------------------------------------------

    def add(self, member: ClientInfo) -> None:
        self.members[member.channel] = member
        self._forget_lists()

    def remove(self, member: ClientInfo) -> None:
        del self.members[member.channel]
        self._forget_lists()

    def update(self, data: ConsumerData) -> bool:
        """Apply what a heartbeat says about the group; tell whether topics came or went."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        return self._update_subscriptions(data.subscription_data_set)

    def _update_subscriptions(self, wanted: Sequence[SubscriptionData]) -> bool:
        known = self.subscriptions
        new: list[SubscriptionData] = []
        changed: list[SubscriptionData] = []
        for subscription in wanted:
            topic = subscription.topic
            old = known.get(topic)
            if old is None:
                known[topic] = subscription
                new.append(subscription)
            elif subscription.sub_version > old.sub_version:
                known[topic] = subscription
                if self.consume_type is ConsumeType.CONSUME_PASSIVELY and _differ(
                    old, subscription
                ):
                    changed += (old, subscription)
        topics = {subscription.topic for subscription in wanted}
        gone = [known.pop(topic) for topic in known.keys() - topics]
        if changed:
            logger.info(
                "group %s: subscriptions changed, each before and after: %s",
                self.name,
                _all_shown(changed),
            )
        if new:
            logger.info("group %s: subscribes to %s", self.name, _all_shown(new))
        if gone:
            logger.warning("group %s: no longer subscribes to %s", self.name, _all_shown(gone))
        return bool(new or gone)

    def _forget_lists(self) -> None:
        self._channels = None
        self._client_ids = None
        self._member_list = None


def _differ(old: SubscriptionData, new: SubscriptionData) -> bool:
    """Whether more than the version changed: clients raise that at every rebalance."""
    return (old.sub_string, old.expression_type) != (new.sub_string, new.expression_type)


def _all_shown(subscriptions: Sequence[SubscriptionData]) -> str:
    """Return subscriptions as text, not more than a line of a log has room for."""
    shown = ", ".join(_shown(subscription) for subscription in subscriptions[:_SHOWN_MAX])
    more = len(subscriptions) - _SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _shown(subscription: SubscriptionData) -> str:
    return (
        f"{subscription.topic} [{subscription.expression_type} {subscription.sub_string!r:.200}"
        f" version {subscription.sub_version}]"
    )
