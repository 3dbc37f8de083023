"""The clients connected to a broker: producers and consumers, by group and by connection.

What the registry guarantees:

- A client is in a group from its heartbeat until it leaves, its connection ends, or no heartbeat
  named the group for `expired_s` seconds.
- A connection that ends costs the number of groups it is in, a search for expired members costs the
  number of those found; neither depends on how many clients there are.
- `on_members_changed` is called at once when consumers of a group came or went or its topics
  changed, with the group and the connection that is new, if one is. It is not called for a group
  without members. It must not raise or wait.

The rules are those of RocketMQ 4.9.8 ProducerManager and ConsumerManager. Two differ on purpose. A
producer is found by client id as long as any of its groups is left, not until the first one leaves.
And a connection is closed only when no group of it is alive; a stock broker closes it when one
expires. Nothing here does I/O; times are seconds of the monotonic clock, given by the caller.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

import msgspec

from rmq.broker.clients.group_members import (
    ClientIdentity,
    ClientInfo,
    ConsumerGroupInfo,
    ProducerGroup,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rmq.remoting.bodies.heartbeat import ConsumerData
    from rmq.remoting.channel import Channel

__all__ = [
    "CHANNEL_EXPIRED_S",
    "ClientIdentity",
    "ClientInfo",
    "ClientRegistry",
    "ClientStatistics",
    "ConsumerGroupInfo",
    "ProducerGroup",
]

logger = logging.getLogger(__name__)

CHANNEL_EXPIRED_S: Final = 120.0
"""Clients send a heartbeat every 30 s."""
_LINES_MAX: Final = 16
"""Members that leave together have a line each in the log, or one for all if they are more."""


class ClientStatistics(msgspec.Struct, frozen=True):
    """A snapshot for metrics."""

    connections: int
    producer_groups: int
    consumer_groups: int
    producers: int
    consumers: int


@final
class ClientRegistry:
    """The connected clients, by group."""

    def __init__(
        self,
        on_members_changed: Callable[[ConsumerGroupInfo, Channel | None], None],
        *,
        expired_s: float = CHANNEL_EXPIRED_S,
    ) -> None:
        self._on_members_changed = on_members_changed
        self._expired_s = expired_s
        self._producers: dict[str, ProducerGroup] = {}
        self._consumers: dict[str, ConsumerGroupInfo] = {}
        # Every member by its connection, and in the order in which they were last heard of.
        self._by_channel: dict[Channel, set[ClientInfo]] = {}
        self._by_age: OrderedDict[ClientInfo, None] = OrderedDict()
        # The connections of a producing client, each with the number of its groups. Almost always
        # one; two while a client that dialled again has not lost its old connection yet.
        self._producers_by_id: dict[str, dict[Channel, int]] = {}

    # ---- producers -------------------------------------------------------------------------------

    def register_producer(
        self, group: str, channel: Channel, client: ClientIdentity, now: float
    ) -> bool:
        """Note a producer of `group`; tell whether it is new."""
        producers = self._producers.get(group)
        if producers is None:
            producers = self._producers[group] = ProducerGroup(group)
        member = producers.members.get(channel)
        if member is not None and member.client_id == client.client_id:
            self._touch(member, now)
            return False
        if member is not None:
            self._drop(member)
        member = ClientInfo(producers, channel, client)
        producers.add(member)
        self._remember(member, now)
        connections = self._producers_by_id.setdefault(client.client_id, {})
        connections[channel] = connections.get(channel, 0) + 1
        channel.log(
            logging.INFO,
            "new producer",
            "new producer %s %s in group %s",
            client.client_id,
            channel.peer,
            group,
        )
        return True

    def unregister_producer(self, group: str, channel: Channel) -> bool:
        """Forget a producer; tell whether it was there."""
        producers = self._producers.get(group)
        member = None if producers is None else producers.members.get(channel)
        if member is None:
            return False
        self._forget(member)
        channel.log(
            logging.INFO,
            "producer left",
            "producer %s %s left group %s",
            member.client_id,
            channel.peer,
            group,
        )
        return True

    def producer_group(self, group: str) -> ProducerGroup | None:
        return self._producers.get(group)

    @property
    def producer_groups(self) -> Mapping[str, ProducerGroup]:
        return self._producers

    def producer_channels(self, group: str) -> tuple[Channel, ...]:
        producers = self._producers.get(group)
        return () if producers is None else producers.channels

    def pick_producer(self, group: str) -> Channel | None:
        """Return a connection of the group, members taking turns; None if there is none."""
        producers = self._producers.get(group)
        return None if producers is None else producers.pick()

    def find_producer(self, client_id: str) -> Channel | None:
        """Return the newest connection of a producing client."""
        connections = self._producers_by_id.get(client_id)
        return next(reversed(connections)) if connections else None

    # ---- consumers -------------------------------------------------------------------------------

    def register_consumer(
        self,
        group: str,
        channel: Channel,
        client: ClientIdentity,
        data: ConsumerData,
        now: float,
        *,
        notify: bool = True,
    ) -> bool:
        """Note a consumer of `group` and what the group subscribes to.

        Tells whether a connection is new or topics came or went; unless `notify` is off, the
        members are told of it as well.
        """
        consumers = self._consumers.get(group)
        if consumers is None:
            consumers = self._consumers[group] = ConsumerGroupInfo(group)
        member = consumers.members.get(channel)
        is_new = member is None
        if member is None or member.client_id != client.client_id:
            if member is None:
                channel.log(
                    logging.INFO,
                    "new consumer",
                    "new consumer %s %s in group %s",
                    client.client_id,
                    channel.peer,
                    group,
                )
            else:
                # Two clients that share a connection would undo each other at every heartbeat:
                # like a stock broker we do not let that keep a whole group rebalancing.
                channel.warn(
                    "another id",
                    "%s in group %s was %s, now calls itself %s",
                    channel.peer,
                    group,
                    member.client_id,
                    client.client_id,
                )
                self._drop(member)
            member = ClientInfo(consumers, channel, client)
            consumers.add(member)
            self._remember(member, now)
        else:
            self._touch(member, now)
        changed = consumers.update(data) or is_new
        if changed and notify:
            self._on_members_changed(consumers, channel if is_new else None)
        return changed

    def unregister_consumer(self, group: str, channel: Channel, *, notify: bool = True) -> bool:
        """Forget a consumer and, unless `notify` is off, tell the others; was it there?"""
        consumers = self._consumers.get(group)
        member = None if consumers is None else consumers.members.get(channel)
        if consumers is None or member is None:
            return False
        self._forget(member)
        channel.log(
            logging.INFO,
            "consumer left",
            "consumer %s %s left group %s",
            member.client_id,
            channel.peer,
            group,
        )
        if notify and consumers.members:
            self._on_members_changed(consumers, None)
        return True

    def consumer_group(self, group: str) -> ConsumerGroupInfo | None:
        return self._consumers.get(group)

    @property
    def consumer_groups(self) -> Mapping[str, ConsumerGroupInfo]:
        return self._consumers

    def groups_subscribing(self, topic: str) -> set[str]:
        """Return the names of the groups that are connected and subscribe to `topic`."""
        return {
            group
            for group, consumers in self._consumers.items()
            if topic in consumers.subscriptions
        }

    def groups_on(
        self, channel: Channel, consumers: Iterable[str] = (), producers: Iterable[str] = ()
    ) -> int:
        """Return in how many groups a connection is, or will be once it is in these as well."""
        groups = {
            (isinstance(member.group, ConsumerGroupInfo), member.group.name)
            for member in self._by_channel.get(channel, ())
        }
        groups.update((True, name) for name in consumers)
        groups.update((False, name) for name in producers)
        return len(groups)

    # ---- ends ------------------------------------------------------------------------------------

    def channel_closed(self, channel: Channel) -> None:
        """Forget all members of a connection that has ended."""
        members = self._by_channel.get(channel)
        if members is not None:
            self._forget_all(list(members), "its connection ended")

    def has_expired(self, now: float) -> bool:
        """Tell whether there are members not heard of for too long."""
        oldest = next(iter(self._by_age), None)
        return oldest is not None and now - oldest.last_update > self._expired_s

    def expire(self, now: float, members_max: int = sys.maxsize) -> list[Channel]:
        """Forget members not heard of for too long; return the connections to be closed.

        They have no member left; closing them is up to the caller. With `members_max` not all of
        them may be forgotten (`has_expired`).
        """
        silent: list[ClientInfo] = []
        for member in self._by_age:
            if now - member.last_update <= self._expired_s or len(silent) >= members_max:
                break
            silent.append(member)
        if not silent:
            return []
        self._forget_all(silent, f"no heartbeat for {self._expired_s:g} s")
        channels = dict.fromkeys(member.channel for member in silent)
        return [channel for channel in channels if channel not in self._by_channel]

    def statistics(self) -> ClientStatistics:
        return ClientStatistics(
            connections=len(self._by_channel),
            producer_groups=len(self._producers),
            consumer_groups=len(self._consumers),
            producers=len(self._producers_by_id),
            consumers=sum(len(group.members) for group in self._consumers.values()),
        )

    # ---- the tables ------------------------------------------------------------------------------

    def _remember(self, member: ClientInfo, now: float) -> None:
        member.last_update = now
        self._by_age[member] = None
        self._by_channel.setdefault(member.channel, set()).add(member)

    def _touch(self, member: ClientInfo, now: float) -> None:
        member.last_update = now
        self._by_age.move_to_end(member)

    def _forget_all(self, members: list[ClientInfo], why: str) -> None:
        """Forget members and tell each consumer group that lost some once."""
        thinned: dict[ConsumerGroupInfo, None] = {}
        for member in members:
            self._forget(member)
            group = member.group
            if isinstance(group, ConsumerGroupInfo):
                thinned[group] = None
            if len(members) <= _LINES_MAX:
                logger.info(
                    "%s %s %s dropped from group %s: %s",
                    "consumer" if group in thinned else "producer",
                    member.client_id,
                    member.channel.peer,
                    group.name,
                    why,
                )
        if len(members) > _LINES_MAX:
            logger.info(
                "%d members dropped, %s %s in group %s for one: %s",
                len(members),
                members[0].client_id,
                members[0].channel.peer,
                members[0].group.name,
                why,
            )
        for consumers in thinned:
            if consumers.members:
                self._on_members_changed(consumers, None)

    def _forget(self, member: ClientInfo) -> None:
        """Take a member out of all tables, and its group if it was the last."""
        self._drop(member)
        group = member.group
        if not group.members:
            groups = self._consumers if isinstance(group, ConsumerGroupInfo) else self._producers
            del groups[group.name]

    def _drop(self, member: ClientInfo) -> None:
        """Take a member out of all tables; its group stays, even if it is empty."""
        channel = member.channel
        member.group.remove(member)
        del self._by_age[member]
        members = self._by_channel[channel]
        members.discard(member)
        if not members:
            del self._by_channel[channel]
        if isinstance(member.group, ProducerGroup):
            connections = self._producers_by_id[member.client_id]
            connections[channel] -= 1
            if not connections[channel]:
                del connections[channel]
            if not connections:
                del self._producers_by_id[member.client_id]
