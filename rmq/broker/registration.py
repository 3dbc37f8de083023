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

from rmq.errors import ClientError, ProtocolError, ResponseError
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

PERIOD_MIN_S: Final = 10.0
PERIOD_MAX_S: Final = 60.0
RETRY_MIN_S: Final = 1.0
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
        self._encoded: tuple[int, int, bytes] | None = None

    # --- notices -----------------------------------------------------------------------------

    def topic_changed(self, topic: TopicConfig | None) -> None:
        """A topic is new or different; None: many are, or one is gone."""
        for nameserver in self._nameservers.values():
            if topic is None:
                nameserver.holds_the_rest = None
            elif nameserver.holds_the_rest is not None:
                nameserver.changed[topic.topic_name] = topic
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
            changed = trio.Event()
            addresses = self._live.current.namesrv_addrs
            self._adopt(addresses)
            self._addresses_changed = changed
            async with trio.open_nursery() as nursery:
                for nameserver in self._nameservers.values():
                    nursery.start_soon(self._look_after, nameserver)
                await changed.wait()
                nursery.cancel_scope.cancel()

    def config_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        """Follow settings that were changed while the broker runs."""
        if old.namesrv_addrs != new.namesrv_addrs:
            self._addresses_changed.set()
        elif old.permission != new.permission:
            self.register_again()

    _addresses_changed: trio.Event

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
        while True:
            period_s = self._live.current.register_period_ms / 1000
            period_s = min(max(period_s, PERIOD_MIN_S), PERIOD_MAX_S)
            if nameserver.failures:
                # Sooner than 4.9.8 does: a nameserver that was restarted knows nobody.
                period_s = min(period_s, RETRY_MIN_S * 2 ** min(nameserver.failures - 1, 6))
            with trio.move_on_after(period_s) as waiting:
                await nameserver.woken.wait()
            if not waiting.cancelled_caught and nameserver.failures:
                # Changes do not make an unreachable nameserver reachable.
                await trio.sleep(period_s)
            await self._register(nameserver)

    async def _register(self, nameserver: _Nameserver) -> None:
        nameserver.woken = trio.Event()
        if self._has_left:
            return
        config = self._live.current
        try:
            answer = await self._send(nameserver, config)
        except (ClientError, ProtocolError) as exc:
            if self._has_left:
                return
            nameserver.holds_the_rest = None
            nameserver.failures += 1
            if nameserver.failures == 1:
                logger.warning(
                    "cannot register at nameserver %s: %s; trying again", nameserver.address, exc
                )
            return
        if nameserver.failures:
            logger.info("registered at nameserver %s again", nameserver.address)
        nameserver.failures = 0
        if answer is not None and self._on_registered is not None:
            self._on_registered(answer)

    async def _send(self, nameserver: _Nameserver, config: BrokerConfig) -> Registered | None:
        """Send what the nameserver has to know; None if it knows everything."""
        assert self._client is not None, "register_once comes first"
        timeout_s = config.register_timeout_ms / 1000
        address = nameserver.address
        channel = await self._connect(address, timeout_s)
        is_rest_known = nameserver.holds_the_rest is channel
        changed, nameserver.changed = nameserver.changed, {}
        if not config.force_register and not changed and await self._is_known(channel, config):
            nameserver.holds_the_rest = channel
            return None
        if is_rest_known and changed:
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
        nameserver.holds_the_rest = None
        answer = await channel.request(
            RequestCode.REGISTER_BROKER, header, body=body, timeout_s=timeout_s
        )
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(address, "REGISTER_BROKER", answer.code, answer.remark)
        if channel.is_open:
            nameserver.holds_the_rest = channel
        told = answer.header(RegisterBrokerResponse)
        table = KVTable.decode(answer.body).table if answer.body else None
        return Registered(address, told.ha_server_addr, told.master_addr, table)

    async def _connect(self, address: str, timeout_s: float) -> Channel:
        assert self._client is not None
        with trio.move_on_after(timeout_s):
            return await self._client.channel(address)
        raise ClientError(address, f"no connection to {address} within {timeout_s:g} s")

    async def _is_known(self, channel: Channel, config: BrokerConfig) -> bool:
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
            timeout_s=config.register_timeout_ms / 1000,
        )
        if answer.code != ResponseCode.SUCCESS:
            return False
        return not answer.header(QueryDataVersionResponse).changed

    async def _unregister(self, nameserver: _Nameserver) -> None:
        assert self._client is not None
        config = self._live.current
        header = UnregisterBrokerRequest(
            broker_name=config.broker_name,
            broker_addr=config.address,
            cluster_name=config.cluster_name,
            broker_id=config.broker_id,
        )
        try:
            await self._client.request(
                nameserver.address,
                RequestCode.UNREGISTER_BROKER,
                header,
                timeout_s=UNREGISTER_TIMEOUT_S,
            )
        except ClientError as exc:
            logger.info("not unregistered at nameserver %s: %s", nameserver.address, exc)

    # --- bodies ------------------------------------------------------------------------------

    def _encode_all(self, config: BrokerConfig) -> bytes:
        """Return the registration of all topics, encoded once per change for all nameservers."""
        key = (self._topics.changes, config.permission)
        if self._encoded is None or self._encoded[:2] != key:
            wrapper = self._topics.to_body(config.permission)
            self._encoded = (*key, self._encode_body(config, wrapper))
        return self._encoded[2]

    def _encode(self, config: BrokerConfig, changed: dict[str, TopicConfig]) -> bytes:
        whole = self._topics.to_body(config.permission)
        wrapper = TopicConfigSerializeWrapper(
            topic_config_table={
                name: topic
                for name in changed
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

    __slots__ = ("address", "changed", "failures", "holds_the_rest", "woken")

    def __init__(self, address: str) -> None:
        self.address = address
        self.woken = trio.Event()
        self.failures = 0
        self.changed: dict[str, TopicConfig] = {}
        """Topics it has not been told of yet."""
        self.holds_the_rest: Channel | None = None
        """The connection on which it was told everything else; it forgets with the connection."""

    def wake(self) -> None:
        self.woken.set()
