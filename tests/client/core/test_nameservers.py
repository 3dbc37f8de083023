"""Asking one nameserver after the other."""

from __future__ import annotations

import pytest

from rmq.client.core.flows import Answer, Ask, Flow
from rmq.client.core.nameservers import Nameservers, parse_nameservers
from rmq.errors import ConfigError, ConnectFailedError, NoNameserverError, ResponseError
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.command import Command


def answered(ask: object, code: int = ResponseCode.SUCCESS, body: bytes | None = None) -> Answer:
    assert isinstance(ask, Ask)
    return Answer(ask, Command(code=code, body=body, remark="because"))


def begun(flow: Flow[object]) -> Ask:
    step = next(flow)
    assert isinstance(step, Ask)
    return step


def failed(flow: Flow[object], ask: Ask) -> Ask:
    step = flow.throw(ConnectFailedError(ask.address, "refused"))
    assert isinstance(step, Ask)
    return step


def test_who_answered_last_is_asked_first() -> None:
    nameservers = Nameservers("a:1;b:1;c:1")
    flow = nameservers.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    first = begun(flow)
    assert first.address == "a:1"
    second = failed(flow, first)
    assert second.address == "b:1"
    with pytest.raises(StopIteration) as end:
        flow.send(answered(second))
    assert end.value.value.ask.address == "b:1"
    assert begun(nameservers.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).address == "b:1"


def test_when_nobody_answers_all_are_named() -> None:
    flow = Nameservers("a:1;b:1", first=1).ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    second = failed(flow, begun(flow))
    with pytest.raises(NoNameserverError) as caught:
        flow.throw(ConnectFailedError(second.address, "refused"))
    assert list(caught.value.attempts) == ["b:1", "a:1"]


def test_an_answer_that_is_an_error_is_an_answer() -> None:
    flow = Nameservers("a:1;b:1").cluster()
    with pytest.raises(ResponseError, match="because") as caught:
        flow.send(answered(begun(flow), ResponseCode.SYSTEM_ERROR))
    assert caught.value.peer == "a:1"


@pytest.mark.parametrize(
    "text", ["", " ; ", "no-port", "host:0", "host:70000", ":1"], ids=["empty", "blank", *"nzlh"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_nameservers(text)


def test_addresses_are_taken_once() -> None:
    assert parse_nameservers(" a:1; b:2;a:1;") == ("a:1", "b:2")
    assert parse_nameservers("a:1,b:2, a:1") == ("a:1", "b:2")
    assert parse_nameservers(["[::1]:9876"]) == ("[::1]:9876",)
