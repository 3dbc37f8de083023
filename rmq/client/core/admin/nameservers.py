"""What admin tools ask of nameservers: settings by key, their own settings, write permission.

Nameservers do not talk to each other, so whatever changes something goes to all of them. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from rmq.client.core.admin.calls import AdminCall
from rmq.client.core.admin.targets import TIMEOUT_S, change_each, read_each
from rmq.client.core.flows import ask, expect
from rmq.client.core.routes import Address
from rmq.errors import BadAnswerError, ProtocolError
from rmq.model.names import MASTER_ID
from rmq.remoting.bodies import KVTable, format_properties, parse_properties
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    DeleteKvConfigRequest,
    GetKvConfigRequest,
    GetKvConfigResponse,
    GetKvListByNamespaceRequest,
    PutKvConfigRequest,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.client.core.admin.targets import Group, Tried
    from rmq.client.core.flows import Answer, Flow
    from rmq.client.core.nameservers import Nameservers

T = TypeVar("T")

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Holds the queues per broker of ordered topics, `broker-a:4;broker-b:4` by topic."""


# --- settings by namespace and key ------------------------------------------------------------


def put_kv(nameservers: Nameservers, namespace: str, key: str, value: str) -> Flow[None]:
    """Set one value of a namespace, at all nameservers."""
    header = PutKvConfigRequest(namespace=namespace, key=key, value=value)
    yield from _change(
        nameservers,
        f"set {namespace}.{key}",
        lambda address: ask(address, RequestCode.PUT_KV_CONFIG, header, timeout_s=TIMEOUT_S),
    )


def get_kv(nameservers: Nameservers, namespace: str, key: str) -> Flow[str | None]:
    """Return one value of a namespace, None if there is none."""
    answer = yield from nameservers.ask(
        RequestCode.GET_KV_CONFIG, GetKvConfigRequest(namespace=namespace, key=key)
    )
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return expect(answer).header(GetKvConfigResponse).value


def delete_kv(nameservers: Nameservers, namespace: str, key: str) -> Flow[None]:
    """Remove one value of a namespace, at all nameservers."""
    header = DeleteKvConfigRequest(namespace=namespace, key=key)
    yield from _change(
        nameservers,
        f"delete {namespace}.{key}",
        lambda address: ask(address, RequestCode.DELETE_KV_CONFIG, header, timeout_s=TIMEOUT_S),
    )


def list_kv(nameservers: Nameservers, namespace: str) -> Flow[dict[str, str]]:
    """Return all values of a namespace; an unknown namespace has none."""
    answer = yield from nameservers.ask(
        RequestCode.GET_KVLIST_BY_NAMESPACE, GetKvListByNamespaceRequest(namespace=namespace)
    )
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return {}
    return expect(answer).body(KVTable).table


def set_topic_order(
    nameservers: Nameservers, topic: str, queues: Mapping[str, int], *, is_whole: bool
) -> Flow[str]:
    """Say how many queues an ordered topic has at each broker; return what is set now.

    Unless `is_whole`, brokers that are not mentioned keep theirs.
    """
    known: dict[str, str] = {}
    if not is_whole:
        before = yield from get_kv(nameservers, ORDER_NAMESPACE, topic)
        for part in (before or "").split(";"):
            name, separator, count = part.partition(":")
            if separator:
                known[name] = count
    known.update((name, str(count)) for name, count in queues.items())
    value = ";".join(f"{name}:{count}" for name, count in known.items())
    yield from put_kv(nameservers, ORDER_NAMESPACE, topic, value)
    return value


# --- their own settings -----------------------------------------------------------------------


def nameserver_config(nameservers: Nameservers) -> Flow[Tried[dict[str, str]]]:
    """Return the settings of every nameserver."""

    def call(nameserver: Address) -> Flow[dict[str, str]]:
        answer = yield from ask(
            nameserver.address, RequestCode.GET_NAMESRV_CONFIG, timeout_s=TIMEOUT_S
        )
        return read_settings(answer)

    return (yield from read_each("settings of nameservers", _all(nameservers), call))


def update_nameserver_config(
    nameservers: Nameservers, settings: Mapping[str, str]
) -> Flow[dict[str, str | None]]:
    """Change settings of every nameserver; return their remarks."""
    body = format_properties(settings)

    def call(address: str) -> Flow[str | None]:
        answer = yield from ask(
            address, RequestCode.UPDATE_NAMESRV_CONFIG, body=body, timeout_s=TIMEOUT_S
        )
        return answer.command.remark

    return (yield from _change(nameservers, f"set {', '.join(settings)}", call))


def read_settings(answer: Answer) -> dict[str, str]:
    """Return the settings that a body lists; raise `BadAnswerError`."""
    try:
        return parse_properties(answer.command.body)
    except ProtocolError as exc:
        raise BadAnswerError(answer.ask.address, answer.ask.code.name, str(exc)) from exc


# --- permission to write ----------------------------------------------------------------------


def wipe_write_permission(nameservers: Nameservers, broker_name: str) -> Flow[dict[str, int]]:
    """Let no new messages go to a broker; return how many topics that is at each nameserver."""

    def call(address: str) -> Flow[int]:
        header = WipeWritePermOfBrokerRequest(broker_name=broker_name)
        answer = yield from ask(
            address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header, timeout_s=TIMEOUT_S
        )
        return answer.header(WipeWritePermOfBrokerResponse).wipe_topic_count

    return (yield from _change(nameservers, f"no more messages to {broker_name}", call))


def add_write_permission(nameservers: Nameservers, broker_name: str) -> Flow[dict[str, int]]:
    """Let messages go to a broker again; return how many topics that is at each nameserver."""

    def call(address: str) -> Flow[int]:
        header = AddWritePermOfBrokerRequest(broker_name=broker_name)
        answer = yield from ask(
            address, RequestCode.ADD_WRITE_PERM_OF_BROKER, header, timeout_s=TIMEOUT_S
        )
        return answer.header(AddWritePermOfBrokerResponse).add_topic_count

    return (yield from _change(nameservers, f"messages to {broker_name} again", call))


# --- all of them ------------------------------------------------------------------------------


def _all(nameservers: Nameservers) -> list[Group]:
    return [[Address("", MASTER_ID, address)] for address in nameservers.addresses]


def _change(
    nameservers: Nameservers, what: str, call: Callable[[str], Flow[T]]
) -> Flow[dict[str, T]]:
    """Call every nameserver; return what they answered by address."""
    answers = yield from change_each(
        what, _all(nameservers), lambda nameserver: call(nameserver.address)
    )
    return {nameserver.address: answer for nameserver, answer in answers}


class NameserverCalls:
    """The flows of this module that admin clients offer."""

    set_topic_order = AdminCall(set_topic_order)
    put_kv = AdminCall(put_kv)
    get_kv = AdminCall(get_kv)
    delete_kv = AdminCall(delete_kv)
    list_kv = AdminCall(list_kv)
    nameserver_config = AdminCall(nameserver_config)
    update_nameserver_config = AdminCall(update_nameserver_config)
    wipe_write_permission = AdminCall(wipe_write_permission)
    add_write_permission = AdminCall(add_write_permission)
