"""What brokers say of themselves: registrations, goodbyes, and whether anything has changed.

Requests of one connection are carried out in their order. Those with long bodies have a queue of
their own, so that a broker with 60,000 topics does not delay others, and how many bytes of them
wait is bounded.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from rmq.errors import ProtocolError, RefusedError
from rmq.log_limits import host_of
from rmq.nameserver.kv import ORDER_TOPIC_NAMESPACE
from rmq.nameserver.names import shown
from rmq.nameserver.registration import LeapError, Registration, StaleEpochError
from rmq.nameserver.slices import JobQueue
from rmq.remoting.bodies.registration_steps import crc32_in_steps, read_registration
from rmq.remoting.bodies.topics import DataVersion
from rmq.remoting.codes import ResponseCode
from rmq.remoting.headers import (
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
)
from rmq.remoting.protocol import Requests

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rmq.nameserver.kv_keeper import KvKeeper
    from rmq.nameserver.registration import Registered
    from rmq.nameserver.routes import RouteTable
    from rmq.nameserver.serving import Serving
    from rmq.remoting.bodies.registration import RegisterBrokerBody
    from rmq.remoting.bodies.topics import TopicConfig
    from rmq.remoting.channel import Channel
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.request import Request

logger = logging.getLogger(__name__)

VERSION_WITH_FILTER_SERVERS: Final = 37
"""3.0.11: from here on a registration has a body of its own class."""

LONG_BYTES: Final = 32 * 1024
"""A longer registration goes to the queue of long ones."""
WAITING_BYTES_MAX: Final = 256 * 1024 * 1024
"""How many bytes of long registrations may wait, in all and on one connection."""
WAITING_BYTES_PER_CONNECTION: Final = 32 * 1024 * 1024
_TOPICS_PER_STEP: Final = 4096
_COMPRESSED_FACTOR: Final = 8
_VERSION_BYTES_MAX: Final = 4 * 1024


@final
class BrokerHandlers:
    """Requests that brokers send."""

    def __init__(
        self,
        routes: RouteTable[Channel],
        kv: KvKeeper,
        serving: Serving,
        *,
        clean: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        """`clean` is called when brokers were removed."""
        self._routes = routes
        self._kv = kv
        self._serving = serving
        self._clean = clean
        self._now = now
        self._waiting: dict[Channel, list[int]] = {}
        """Sizes of the bodies in the queue of long ones, by connection."""
        self._waiting_bytes = 0

    def add_to(self, table: HandlerTable) -> None:
        table.add(Requests.REGISTER_BROKER, self._register)
        table.add(Requests.UNREGISTER_BROKER, self._unregister)
        table.add(Requests.QUERY_DATA_VERSION, self._data_version)

    # ---- registering -----------------------------------------------------------------------------

    def _register(self, request: Request[RegisterBrokerRequest]) -> None:
        size = len(request.body or b"")
        cost = size * _COMPRESSED_FACTOR if request.header.compressed else size
        if cost <= LONG_BYTES and request.channel not in self._waiting:
            self._serving.serve(JobQueue.CHANGES, request, self._registering(request))
            return
        waiting = self._waiting.get(request.channel, [])
        if (
            self._waiting_bytes + size > WAITING_BYTES_MAX
            or sum(waiting) + size > WAITING_BYTES_PER_CONNECTION
        ):
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"{self._waiting_bytes} bytes of registrations are waiting, {sum(waiting)} of them"
                " from this connection; register again",
            )
        self._wait_in_line(request, self._registering(request), size)

    def _wait_in_line(
        self,
        request: Request[RegisterBrokerRequest] | Request[UnregisterBrokerRequest],
        work: Generator[None, None, None],
        size: int,
    ) -> None:
        """Serve a request in the queue of long ones."""
        channel = request.channel

        def counted() -> Generator[None, None, None]:
            try:
                yield from work
            finally:
                waiting = self._waiting[channel]
                waiting.remove(size)
                if not waiting:
                    del self._waiting[channel]
                self._waiting_bytes -= size

        self._waiting.setdefault(channel, []).append(size)
        self._waiting_bytes += size
        self._serving.serve(JobQueue.LONG_CHANGES, request, counted())

    def _registering(self, request: Request[RegisterBrokerRequest]) -> Generator[None, None, None]:
        header = request.header
        if header.body_crc32:
            crc32 = yield from crc32_in_steps(request.body or b"")
            if crc32 != header.body_crc32:
                self._serving.warn(
                    "crc",
                    request,
                    "registration of %s: its body has another CRC than its header says",
                    shown(header.broker_addr),
                )
                raise RefusedError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        topics: list[TopicConfig] = []
        said = _read_registration(request, (yield from self._reading(request)), topics)
        try:
            outcome = yield from self._routes.register(said, request.channel, self._now())
        except StaleEpochError as exc:
            self._serving.warn("stale epoch", request, "%s", exc.remark)
            request.reply(RegisterBrokerResponse(epoch=exc.epoch), code=exc.code, remark=exc.remark)
            return
        except LeapError as exc:
            self._serving.warn("leap", request, "%s", exc.remark)
            raise
        finally:
            self._clean()
        self._log(request, said, outcome)
        ordered_topics = yield from self._kv.table.encoded(ORDER_TOPIC_NAMESPACE)
        master = outcome.master
        request.reply(
            RegisterBrokerResponse(
                ha_server_addr=None if master is None else master.ha_address,
                master_addr=None if master is None else master.address,
                epoch=outcome.epoch or None,
            ),
            body=ordered_topics,
        )
        # What takes long to make takes long to free.
        while topics:
            yield
            del topics[-_TOPICS_PER_STEP:]

    def _reading(
        self, request: Request[RegisterBrokerRequest]
    ) -> Generator[None, None, RegisterBrokerBody]:
        header = request.header
        is_bare = _has_no_filter_servers(request)
        try:
            return (
                yield from read_registration(
                    request.body, compressed=header.compressed and not is_bare, is_bare=is_bare
                )
            )
        except ProtocolError as exc:
            remark = f"Failed to decode RegisterBrokerBody: {exc}"
            self._serving.warn(
                "body", request, "registration of %s: %s", shown(header.broker_addr), remark
            )
            raise RefusedError(ResponseCode.SYSTEM_ERROR, remark) from None

    def _log(
        self, request: Request[RegisterBrokerRequest], said: Registration, outcome: Registered
    ) -> None:
        if outcome.left_out:
            self._serving.warn(
                "names",
                request,
                "%d topics of %s are not listed: their names are too long or contain control"
                " characters",
                outcome.left_out,
                said.broker_name,
            )
        if outcome.deposed is not None and self._serving.may_tell("new master", request.channel):
            logger.info(
                "a new master",
                extra={
                    "broker": said.broker_name,
                    "epoch": said.epoch,
                    "address": said.address,
                    "deposed": outcome.deposed,
                },
            )
        is_news = outcome.is_new or outcome.topics_changed
        if is_news and self._serving.may_tell("registered", request.channel):
            logger.info(
                "broker registered",
                extra={
                    "broker": said.broker_name,
                    "id": said.broker_id,
                    "address": said.address,
                    "cluster": said.cluster,
                    "topics_changed": outcome.topics_changed,
                },
            )

    # ---- leaving, and signs of life --------------------------------------------------------------

    def _unregister(self, request: Request[UnregisterBrokerRequest]) -> None:
        if request.channel in self._waiting:
            # It came after a registration that is being read.
            self._wait_in_line(request, self._unregistering(request), 0)
        else:
            self._serving.serve(JobQueue.CHANGES, request, self._unregistering(request))

    def _unregistering(
        self, request: Request[UnregisterBrokerRequest]
    ) -> Generator[None, None, None]:
        address = request.header.broker_addr
        holder = self._routes.holder(address)
        if holder is not None and host_of(holder.peer) != host_of(request.channel.peer):
            # A broker says goodbye where it registered. Its connection is open, and when that ends
            # the broker is removed anyway.
            self._serving.warn(
                "unregistering",
                request,
                "%s was not unregistered: it is registered from %s",
                shown(address),
                holder.peer,
            )
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"{shown(address)} is registered over an open connection from another host",
            )
        if self._routes.unregister(address):
            self._clean()
            if self._serving.may_tell("unregistered", request.channel):
                logger.info("broker unregistered", extra={"address": address})
        request.reply()
        return
        yield  # This makes it a generator; it has a single step.

    def _data_version(self, request: Request[QueryDataVersionRequest]) -> None:
        if len(request.body or b"") > _VERSION_BYTES_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"a data version is at most {_VERSION_BYTES_MAX} bytes"
            )
        try:
            asked = DataVersion.decode(request.body)
        except ProtocolError as exc:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(exc)) from None
        address = request.header.broker_addr
        known = self._routes.data_version(address)
        holder = self._routes.holder(address)
        if known == asked and holder is not None:
            # Knowing the version is no proof: asking from another host takes no broker over.
            is_same = host_of(holder.peer) == host_of(request.channel.peer)
            connection = request.channel if is_same else holder
            self._routes.heard_of(address, connection, self._now())
        request.reply(
            QueryDataVersionResponse(changed=known != asked),
            body=None if known is None else known.encode(),
        )


def _read_registration(
    request: Request[RegisterBrokerRequest], body: RegisterBrokerBody, topics: list[TopicConfig]
) -> Registration:
    """Return what a broker says, with its topics in `topics`."""
    header, wrapper = request.header, body.topic_config_serialize_wrapper
    topics += wrapper.topic_config_table.values()
    return Registration(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_address=header.ha_server_addr,
        data_version=wrapper.data_version,
        topics=topics,
        filter_servers=None if _has_no_filter_servers(request) else body.filter_server_list,
        epoch=header.epoch or 0,
    )


def _has_no_filter_servers(request: Request[RegisterBrokerRequest]) -> bool:
    return request.command.version < VERSION_WITH_FILTER_SERVERS
