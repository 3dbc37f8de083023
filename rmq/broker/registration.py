"""The broker tells nameservers of itself and its topics.

Each nameserver has a task of its own, so one that is down does not hold up the others. A broker
registers at start, every `registerNameServerPeriod` and at once when topics change; what changed is
then enough, as long as the nameserver is known to hold the rest (RocketMQ 4.9.8 BrokerOuterAPI
assumes that always). A connection that was lost is made again at once, because a nameserver forgets
a broker with its connection.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from rmq.errors import ClientError, ConnectionLostError, ResponseError, RmqError
from rmq.remoting.bodies import (
    KVTable,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    body_crc32,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.config import BrokerConfig, LiveConfig
    from rmq.broker.topics import TopicTable
    from rmq.remoting.bodies import TopicConfig
    from rmq.remoting.channel import Channel
    from rmq.remoting.client import RemotingClient

logger = logging.getLogger(__name__)

RETRY_MIN_S: Final = 1.0
"""The first pause after a failure; it doubles, up to the period of registrations."""
TOLD_S: Final = 1.0
"""How long whoever made a topic waits for its registration."""
UNREGISTER_TIMEOUT_S: Final = 3.0


class Registered(NamedTuple):
    """What a nameserver answered."""

    nameserver: str
    ha_address: str | None
    """Of the master, for a slave that asked."""
    master_address: str | None
    order_topics: dict[str, str] | None
    """Queues of ordered topics; None if the nameserver has no such table."""


@final
class Registration:
    """Keeps the nameservers informed. Use as listener of the client it is given."""

    def __init__(
        self,
        live: LiveConfig,
        topics: TopicTable,
        *,
        on_registered: Callable[[Registered], None] | None = None,
    ) -> None:
        self._live = live
        self._topics = topics
        self._on_registered = on_registered
        self._client: RemotingClient | None = None
        self._has_left = False
        self._nameservers: dict[str, _Nameserver] = {}
        self._addresses_changed = trio.Event()
        self._encoded: tuple[tuple[int, int, bool], bytes] | None = None

    # --- notices -----------------------------------------------------------------------------

    def topic_changed(self, topic: TopicConfig | None) -> None:
        """A topic is new or different; None: many are, or one is gone."""
        for nameserver in self._nameservers.values():
            if topic is None:
                nameserver.needs_all = True
            else:
                nameserver.changed.add(topic.topic_name)
            nameserver.wanted += 1
            nameserver.wake()

    def register_again(self) -> None:
        """Register everything now, for instance because permissions changed."""
        self.topic_changed(None)

    def connection_opened(self, channel: Channel) -> None:
        """Whoever opened it goes on by itself."""

    def connection_closed(self, channel: Channel, reason: str) -> None:
        for nameserver in self._nameservers.values():
            if nameserver.holds_the_rest is channel:
                nameserver.holds_the_rest = None
                if trio.current_time() - channel.opened_at < RETRY_MIN_S:
                    # It may go on like that; not as fast as it can.
                    nameserver.failures += 1
                nameserver.wake()

    def connection_idle(self, channel: Channel) -> None:
        """It is closed next."""

    # --- tasks -------------------------------------------------------------------------------

    @property
    def registered_at(self) -> tuple[str, ...]:
        """The nameservers that know of this broker, as far as one can tell."""
        return tuple(
            nameserver.address
            for nameserver in self._nameservers.values()
            if nameserver.holds_the_rest is not None
        )

    async def wait_told(self, timeout_s: float = TOLD_S) -> None:
        """Wait until all nameservers that can be reached know of what changed so far.

        Returns when time is up, too: a topic is there, whether they know of it or not.
        """
        marks = [(nameserver, nameserver.wanted) for nameserver in self._nameservers.values()]
        with trio.move_on_after(timeout_s):
            for nameserver, wanted in marks:
                while nameserver.told < wanted and not nameserver.failures:
                    await nameserver.tried.wait()

    async def register_once(self, client: RemotingClient) -> int:
        """Register with all nameservers at once; return how many took it."""
        self._client = client
        self._adopt(self._live.current.namesrv_addrs)
        async with trio.open_nursery() as nursery:
            for nameserver in self._nameservers.values():
                nursery.start_soon(self._register, nameserver)
        return len(self.registered_at)

    async def run(self) -> None:
        """Register again and again, until cancelled; `register_once` comes first."""
        while True:
            self._addresses_changed = trio.Event()
            self._adopt(self._live.current.namesrv_addrs)
            async with trio.open_nursery() as nursery:
                for nameserver in self._nameservers.values():
                    if nameserver.holds_the_rest is None:
                        # It is new, or was just being told when the others changed.
                        nameserver.wake()
                    nursery.start_soon(self._look_after, nameserver)
                await self._addresses_changed.wait()
                nursery.cancel_scope.cancel()

    def config_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        """Follow settings that were changed while the broker runs."""
        if old.namesrv_addrs != new.namesrv_addrs:
            self._addresses_changed.set()
        if old.permission != new.permission:
            # Nameservers take the topics of a version that they have not seen, and no others.
            self._topics.put(next(iter(self._topics.items()))[1])
            self.register_again()

    async def unregister_all(self) -> None:
        """Tell all nameservers that the broker goes, each within a few seconds.

        Nothing is registered after that.
        """
        self._has_left = True
        async with trio.open_nursery() as nursery:
            for nameserver in self._nameservers.values():
                nursery.start_soon(self._unregister, nameserver)

    def _adopt(self, addresses: tuple[str, ...]) -> None:
        self._nameservers = {
            address: self._nameservers.get(address) or _Nameserver(address) for address in addresses
        }

    async def _look_after(self, nameserver: _Nameserver) -> None:
        while not self._has_left:
            period_s = self._live.current.register_period_ms / 1000
            if not nameserver.failures:
                with trio.move_on_after(period_s):
                    await nameserver.woken.wait()
            if nameserver.failures:
                # Sooner than 4.9.8 does: a nameserver that was restarted knows nobody. Changes do
                # not make an unreachable one reachable, so they wake nobody here.
                await trio.sleep(min(period_s, RETRY_MIN_S * 2 ** min(nameserver.failures - 1, 6)))
            await self._register(nameserver)

    async def _register(self, nameserver: _Nameserver) -> None:
        nameserver.woken = trio.Event()
        if self._has_left:
            return
        try:
            await self._try_to_register(nameserver)
        finally:
            nameserver.tried.set()
            nameserver.tried = trio.Event()

    async def _try_to_register(self, nameserver: _Nameserver) -> None:
        wanted = nameserver.wanted
        try:
            answer = await self._send(nameserver, self._live.current)
        except RmqError as exc:
            if self._has_left:
                return
            nameserver.holds_the_rest = None
            nameserver.failures += 1
            if nameserver.problem != str(exc):
                nameserver.problem = str(exc)
                logger.warning(
                    "cannot register at nameserver %s: %s; trying again", nameserver.address, exc
                )
            return
        if nameserver.problem is not None:
            logger.info("registered at nameserver %s again", nameserver.address)
            nameserver.problem = None
        nameserver.failures = 0
        nameserver.told = wanted
        if answer is not None and self._on_registered is not None:
            self._on_registered(answer)

    async def _send(self, nameserver: _Nameserver, config: BrokerConfig) -> Registered | None:
        """Send what the nameserver has to know; None if it knows everything."""
        address = nameserver.address
        timeout_s = config.register_timeout_ms / 1000
        deadline = trio.current_time() + timeout_s
        channel = await self._connect(address, timeout_s)
        # What changes from here on is not in what is sent now, and will be sent next.
        changed, nameserver.changed = nameserver.changed, set()
        needs_all = nameserver.needs_all or nameserver.holds_the_rest is not channel
        nameserver.needs_all = False
        if not (config.force_register or needs_all or changed) and await self._is_known(
            channel, config, deadline
        ):
            return None
        if changed and not needs_all:
            body = self._encode(config, changed)
        else:
            body = self._encode_all(config)
        header = RegisterBrokerRequest(
            broker_name=config.broker_name,
            broker_addr=config.address,
            cluster_name=config.cluster_name,
            ha_server_addr=config.ha_address,
            broker_id=config.broker_id,
            compressed=config.compressed_register,
            body_crc32=body_crc32(body),
        )
        # Until it answers nobody knows what it has heard.
        nameserver.holds_the_rest = None
        answer = await channel.request(
            RequestCode.REGISTER_BROKER, header, body=body, timeout_s=_left(deadline)
        )
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(address, "REGISTER_BROKER", answer.code, answer.remark)
        told = answer.header(RegisterBrokerResponse)
        table = KVTable.decode(answer.body).table if answer.body else None
        if channel.close_reason is not None:
            raise ConnectionLostError(address, channel.close_reason)
        nameserver.holds_the_rest = channel
        return Registered(address, told.ha_server_addr, told.master_addr, table)

    async def _connect(self, address: str, timeout_s: float) -> Channel:
        assert self._client is not None, "register_once comes first"
        with trio.move_on_after(timeout_s):
            return await self._client.channel(address)
        raise ClientError(address, f"no connection to {address} within {timeout_s:g} s")

    async def _is_known(self, channel: Channel, config: BrokerConfig, deadline: float) -> bool:
        """Ask whether a nameserver has the present version of the topics."""
        answer = await channel.request(
            RequestCode.QUERY_DATA_VERSION,
            QueryDataVersionRequest(
                broker_name=config.broker_name,
                broker_addr=config.address,
                cluster_name=config.cluster_name,
                broker_id=config.broker_id,
            ),
            body=self._topics.version.encode(),
            timeout_s=_left(deadline),
        )
        if answer.code != ResponseCode.SUCCESS:
            return False
        return not answer.header(QueryDataVersionResponse).changed

    async def _unregister(self, nameserver: _Nameserver) -> None:
        assert self._client is not None, "register_once comes first"
        config = self._live.current
        header = UnregisterBrokerRequest(
            broker_name=config.broker_name,
            broker_addr=config.address,
            cluster_name=config.cluster_name,
            broker_id=config.broker_id,
        )
        channel = self._client.open_channel_to(nameserver.address)
        if channel is None:
            # It forgot the broker with the connection.
            return
        try:
            await channel.request(
                RequestCode.UNREGISTER_BROKER, header, timeout_s=UNREGISTER_TIMEOUT_S
            )
        except RmqError as exc:
            logger.info("not unregistered at nameserver %s: %s", nameserver.address, exc)

    # --- bodies ------------------------------------------------------------------------------

    def _encode_all(self, config: BrokerConfig) -> bytes:
        """Return the registration of all topics, encoded once per change for all nameservers."""
        key = (self._topics.changes, config.permission, config.compressed_register)
        if self._encoded is None or self._encoded[0] != key:
            wrapper = self._topics.to_body(config.permission)
            self._encoded = (key, self._encode_body(config, wrapper))
        return self._encoded[1]

    def _encode(self, config: BrokerConfig, changed: set[str]) -> bytes:
        whole = self._topics.to_body(config.permission)
        wrapper = TopicConfigSerializeWrapper(
            topic_config_table={
                name: topic
                for name in sorted(changed)
                if (topic := whole.topic_config_table.get(name)) is not None
            },
            data_version=whole.data_version,
        )
        return self._encode_body(config, wrapper)

    def _encode_body(self, config: BrokerConfig, wrapper: TopicConfigSerializeWrapper) -> bytes:
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=())
        return body.encode_compressed() if config.compressed_register else body.encode()


@final
class _Nameserver:
    """What is known of one nameserver."""

    __slots__ = (
        "address",
        "changed",
        "failures",
        "holds_the_rest",
        "needs_all",
        "problem",
        "told",
        "tried",
        "wanted",
        "woken",
    )

    def __init__(self, address: str) -> None:
        self.address = address
        self.woken = trio.Event()
        self.tried = trio.Event()
        """Set when an attempt to register is over."""
        self.wanted = 0
        """Counts what it had to be told."""
        self.told = 0
        """Up to where of that it was."""
        self.failures = 0
        self.problem: str | None = None
        """Why the last registration failed, as it was logged."""
        self.changed: set[str] = set()
        """Topics it has not been told of yet."""
        self.needs_all = False
        """Whether more changed than that."""
        self.holds_the_rest: Channel | None = None
        """The connection on which it was told everything else; it forgets with the connection."""

    def wake(self) -> None:
        self.woken.set()


def _left(deadline: float) -> float:
    return max(0.0, deadline - trio.current_time())
