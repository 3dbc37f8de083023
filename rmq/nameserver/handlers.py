"""The request codes of a nameserver, with the checks, codes and remarks of RocketMQ 4.9.8
DefaultRequestProcessor.

Everything is answered at once, from memory, except what must be on disk first: changes of the KV
config and of the settings. A code that is not here is not answered at all.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import trio

from rmq.errors import ProtocolError, RefusedError, StorageError
from rmq.model.in_sync_record import NAMESPACE as IN_SYNC_NAMESPACE
from rmq.nameserver.config import SCHEMA
from rmq.nameserver.kv import ORDER_TOPIC_NAMESPACE
from rmq.nameserver.kv_keeper import Delete, Put
from rmq.nameserver.registration import LeapError, Registration, StaleEpochError
from rmq.remoting.bodies.properties_text import format_properties, parse_properties
from rmq.remoting.bodies.registration import RegisterBrokerBody, body_crc32
from rmq.remoting.bodies.topics import DataVersion, TopicConfigSerializeWrapper
from rmq.remoting.codes import ResponseCode
from rmq.remoting.headers import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    DeleteKvConfigRequest,
    DeleteTopicFromNamesrvRequest,
    GetKvConfigRequest,
    GetKvConfigResponse,
    GetKvListByNamespaceRequest,
    GetRouteInfoRequest,
    GetTopicsByClusterRequest,
    PutKvConfigRequest,
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)
from rmq.remoting.protocol import Requests
from rmq.settings.guard import without_masks

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.nameserver.config import LiveConfig
    from rmq.nameserver.kv_keeper import Edit, KvKeeper
    from rmq.nameserver.record_guard import RecordGuard
    from rmq.nameserver.route_answers import RouteAnswers
    from rmq.nameserver.routes import RouteTable
    from rmq.remoting.channel import Channel
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.header import EmptyHeader
    from rmq.remoting.request import Request

logger = logging.getLogger(__name__)

VERSION_WITH_FILTER_SERVERS: Final = 37
"""3.0.11: from here on a registration has a body of its own class."""
VERSION_WITH_STANDARD_JSON: Final = 401
"""4.9.4: from here on clients read routes in standard JSON."""

_NO_ROUTE: Final = (
    "No topic route info in name server for the topic: {}"
    "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
)


@final
class RouteHandlers:
    """Brokers, topics and routes."""

    def __init__(
        self,
        routes: RouteTable[Channel],
        answers: RouteAnswers,
        kv: KvKeeper,
        config: LiveConfig,
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        self._routes = routes
        self._answers = answers
        self._kv = kv
        self._config = config
        self._now = now

    def add_to(self, table: HandlerTable) -> None:
        table.add(Requests.REGISTER_BROKER, self._register)
        table.add(Requests.UNREGISTER_BROKER, self._unregister)
        table.add(Requests.QUERY_DATA_VERSION, self._data_version)
        table.add(Requests.GET_ROUTEINFO_BY_TOPIC, self._route)
        table.add(Requests.WIPE_WRITE_PERM_OF_BROKER, self._wipe_write_perm)
        table.add(Requests.ADD_WRITE_PERM_OF_BROKER, self._add_write_perm)
        table.add(Requests.DELETE_TOPIC_IN_NAMESRV, self._delete_topic)
        table.add(Requests.GET_TOPICS_BY_CLUSTER, self._topics_of_cluster)
        answers = self._answers
        for request, make in (
            (Requests.GET_BROKER_CLUSTER_INFO, answers.cluster_info),
            (Requests.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, answers.topics),
            (Requests.GET_SYSTEM_TOPIC_LIST_FROM_NS, answers.system_topics),
            (Requests.GET_UNIT_TOPIC_LIST, answers.unit_topics),
            (Requests.GET_HAS_UNIT_SUB_TOPIC_LIST, answers.unit_sub_topics),
            (Requests.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, answers.unit_sub_topics_not_unit),
        ):
            table.add(request, _replying_with(make))

    def _register(self, request: Request[RegisterBrokerRequest]) -> None:
        header = request.header
        if header.body_crc32 and body_crc32(request.body or b"") != header.body_crc32:
            logger.warning(
                "registration of %s from %s: its body has another CRC than its header says",
                header.broker_addr,
                request.channel.peer,
            )
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        said = _read_registration(request)
        try:
            outcome = self._routes.register(said, request.channel, self._now())
        except StaleEpochError as exc:
            logger.warning("%s", exc.remark, extra={"peer": request.channel.peer})
            request.reply(RegisterBrokerResponse(epoch=exc.epoch), code=exc.code, remark=exc.remark)
            return
        except LeapError as exc:
            logger.warning("%s", exc.remark, extra={"peer": request.channel.peer})
            raise
        if outcome.deposed is not None:
            logger.warning(
                "a new master",
                extra={
                    "broker": said.broker_name,
                    "epoch": said.epoch,
                    "address": said.address,
                    "deposed": outcome.deposed,
                },
            )
        if outcome.is_new or outcome.topics_changed:
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
        master = outcome.master
        request.reply(
            RegisterBrokerResponse(
                ha_server_addr=None if master is None else master.ha_address,
                master_addr=None if master is None else master.address,
                epoch=outcome.epoch or None,
            ),
            body=self._kv.table.encoded(ORDER_TOPIC_NAMESPACE),
        )

    def _unregister(self, request: Request[UnregisterBrokerRequest]) -> None:
        address = request.header.broker_addr
        if self._routes.unregister(address):
            logger.info("broker unregistered", extra={"address": address})
        request.reply()

    def _data_version(self, request: Request[QueryDataVersionRequest]) -> None:
        try:
            asked = DataVersion.decode(request.body)
        except ProtocolError as exc:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(exc)) from None
        address = request.header.broker_addr
        known = self._routes.data_version(address)
        if known == asked:
            self._routes.heard_of(address, request.channel, self._now())
        request.reply(
            QueryDataVersionResponse(changed=known != asked),
            body=None if known is None else known.encode(),
        )

    def _route(self, request: Request[GetRouteInfoRequest]) -> None:
        header = request.header
        topic = header.topic
        is_standard = (
            request.command.version >= VERSION_WITH_STANDARD_JSON
            or header.accept_standard_json_only is True
        )
        order_topic_conf = (
            self._kv.table.get(ORDER_TOPIC_NAMESPACE, topic)
            if self._config.current.order_topics
            else None
        )
        body = self._answers.route(topic, standard=is_standard, order_topic_conf=order_topic_conf)
        if body is None:
            request.reply(code=ResponseCode.TOPIC_NOT_EXIST, remark=_NO_ROUTE.format(topic))
        else:
            request.reply(body=body)

    def _wipe_write_perm(self, request: Request[WipeWritePermOfBrokerRequest]) -> None:
        name = request.header.broker_name
        count = self._routes.wipe_write_perm(name)
        _log_admin(request, "write permission wiped", broker=name, topics=count)
        request.reply(WipeWritePermOfBrokerResponse(wipe_topic_count=count))

    def _add_write_perm(self, request: Request[AddWritePermOfBrokerRequest]) -> None:
        name = request.header.broker_name
        count = self._routes.add_write_perm(name)
        _log_admin(request, "write permission added", broker=name, topics=count)
        request.reply(AddWritePermOfBrokerResponse(add_topic_count=count))

    def _delete_topic(self, request: Request[DeleteTopicFromNamesrvRequest]) -> None:
        header = request.header
        if self._routes.delete_topic(header.topic, header.cluster_name):
            _log_admin(request, "topic deleted", topic=header.topic, cluster=header.cluster_name)
        request.reply()

    def _topics_of_cluster(self, request: Request[GetTopicsByClusterRequest]) -> None:
        request.reply(body=self._answers.topics_of_cluster(request.header.cluster))


@final
class KvHandlers:
    """Settings by namespace."""

    def __init__(
        self,
        kv: KvKeeper,
        guard: RecordGuard[Channel],
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        self._kv = kv
        self._guard = guard
        self._now = now
        self._logged = ""
        """The last refusal of a record; brokers try again every second."""

    def add_to(self, table: HandlerTable) -> None:
        table.add(Requests.PUT_KV_CONFIG, self._put)
        table.add(Requests.GET_KV_CONFIG, self._get)
        table.add(Requests.DELETE_KV_CONFIG, self._delete)
        table.add(Requests.GET_KVLIST_BY_NAMESPACE, self._list)

    def _put(self, request: Request[PutKvConfigRequest]) -> None:
        header = request.header
        edit = Put(header.namespace, header.key, header.value)
        if header.namespace == IN_SYNC_NAMESPACE:
            edit = edit._replace(check=partial(self._check_record, request))
        self._change(request, edit)

    def _check_record(self, request: Request[PutKvConfigRequest], kept: str | None) -> None:
        header, channel = request.header, request.channel
        try:
            self._guard.check(
                header.key,
                header.value,
                kept,
                channel,
                self._now(),
                instead_of=header.instead_of,
            )
        except RefusedError as exc:
            if exc.remark != self._logged:
                self._logged = exc.remark
                logger.warning("%s", exc.remark, extra={"peer": channel.peer})
            raise
        finally:
            if channel.close_reason is not None:
                # It ended while the value waited for its turn.
                self._guard.connection_lost(channel)

    def _delete(self, request: Request[DeleteKvConfigRequest]) -> None:
        self._change(request, Delete(request.header.namespace, request.header.key))

    def _change(
        self, request: Request[PutKvConfigRequest] | Request[DeleteKvConfigRequest], edit: Edit
    ) -> None:
        def on_outcome(refusal: RefusedError | None) -> None:
            if refusal is None:
                request.reply()
            else:
                request.reply(code=refusal.code, remark=refusal.remark)

        request.defer()
        self._kv.submit(edit, on_outcome)

    def _get(self, request: Request[GetKvConfigRequest]) -> None:
        header = request.header
        value = self._kv.table.get(header.namespace, header.key)
        if value is None:
            request.reply(
                GetKvConfigResponse(),
                code=ResponseCode.QUERY_NOT_FOUND,
                remark=f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        else:
            request.reply(GetKvConfigResponse(value=value))

    def _list(self, request: Request[GetKvListByNamespaceRequest]) -> None:
        namespace = request.header.namespace
        body = self._kv.table.encoded(namespace)
        if body is None:
            request.reply(
                code=ResponseCode.QUERY_NOT_FOUND,
                remark=f"No config item, Namespace: {namespace}",
            )
        else:
            request.reply(body=body)


@final
class ConfigHandlers:
    """The nameserver's own settings."""

    def __init__(self, config: LiveConfig, *, is_admin: Callable[[Request[Any]], bool]) -> None:
        """`is_admin` tells whether the sender of a request has admin rights."""
        self._config = config
        self._is_admin = is_admin
        self._updating = trio.Lock()

    def add_to(self, table: HandlerTable) -> None:
        table.add_async(Requests.UPDATE_NAMESRV_CONFIG, self._update)
        table.add(Requests.GET_NAMESRV_CONFIG, self._get)

    def _get(self, request: Request[EmptyHeader]) -> None:
        request.reply(body=format_properties(self._config.current.as_properties()))

    async def _update(self, request: Request[EmptyHeader]) -> None:
        try:
            changes = without_masks(SCHEMA, parse_properties(request.body))
        except ProtocolError as exc:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"string2Properties error: {exc}"
            ) from None
        async with self._updating:
            change = self._config.plan(changes, by_admin=self._is_admin(request))
            try:
                await trio.to_thread.run_sync(self._config.write, changes)
            except StorageError as exc:
                logger.error("update of the settings refused: %s", exc)
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR, f"nothing was updated: {exc}"
                ) from exc
            self._config.apply(change)
        _log_admin(request, "settings updated", keys=" ".join(changes))
        remark = None
        if change.restart:
            remark = f"effective after a restart: {', '.join(change.restart)}"
            logger.warning("settings %s", remark)
        request.reply(remark=remark)


def _read_registration(request: Request[RegisterBrokerRequest]) -> Registration:
    header = request.header
    filter_servers: tuple[str, ...] | None = None
    try:
        if request.command.version < VERSION_WITH_FILTER_SERVERS:
            wrapper = TopicConfigSerializeWrapper()
            if request.body:
                wrapper = TopicConfigSerializeWrapper.decode(request.body)
        else:
            body = (
                RegisterBrokerBody.decode_compressed(request.body)
                if header.compressed
                else RegisterBrokerBody.decode(request.body)
            )
            wrapper = body.topic_config_serialize_wrapper
            filter_servers = body.filter_server_list
    except ProtocolError as exc:
        remark = f"Failed to decode RegisterBrokerBody: {exc}"
        logger.warning(
            "registration of %s from %s: %s", header.broker_addr, request.channel.peer, remark
        )
        raise RefusedError(ResponseCode.SYSTEM_ERROR, remark) from None
    return Registration(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_address=header.ha_server_addr,
        data_version=wrapper.data_version,
        topics=tuple(wrapper.topic_config_table.values()),
        filter_servers=filter_servers,
        epoch=header.epoch or 0,
    )


def _replying_with(make: Callable[[], bytes]) -> Callable[[Request[EmptyHeader]], None]:
    def reply(request: Request[EmptyHeader]) -> None:
        request.reply(body=make())

    return reply


def _log_admin(request: Request[Any], what: str, **facts: object) -> None:
    """Changes by hand are rare and worth a line each, with who made them."""
    logger.info(what, extra={**facts, "peer": request.channel.peer})
