"""What requests need: every code is declared, and with what RocketMQ 4.9.8 asks for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rmq.access.needs import NEEDS
from rmq.access.permissions import PUB, SUB
from rmq.model.queues import MessageQueue
from rmq.nameserver.server import Nameserver
from rmq.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    ProducerData,
    SubscriptionData,
    UnlockBatchRequestBody,
)
from rmq.remoting.codes import OWN_CODES_FIRST, RequestCode
from rmq.remoting.protocol import REQUESTS
from tests.broker.broker_kit import part_broker
from tests.nameserver.kit import config_for
from tests.paths import DOCS

if TYPE_CHECKING:
    from pathlib import Path

STOCK_ADMIN_CODES = {17, 25, 200, 207, 215}
STOCK_RESOURCE_CODES = {10, 310, 36, 11, 12, 34, 35, 38, 15}
"""The switch of PlainAccessValidator."""


def test_every_request_has_a_need_and_nothing_else_does() -> None:
    assert set(NEEDS) == set(RequestCode) == set(REQUESTS)


def test_stock_asks_for_no_more_than_is_asked_for_here() -> None:
    for code in STOCK_ADMIN_CODES:
        assert NEEDS[code].is_admin, code
        assert NEEDS[code].stock is None, code
    for code in STOCK_RESOURCE_CODES:
        assert NEEDS[code].resources is not None, code


def test_what_is_stricter_than_stock_says_so() -> None:
    for code, need in NEEDS.items():
        more = need.is_admin or need.resources is not None
        if more and code not in STOCK_ADMIN_CODES | STOCK_RESOURCE_CODES:
            assert need.stock is not None, RequestCode(code)
        assert (need.resources is None) == (not need.shown), RequestCode(code)


async def test_what_servers_serve_is_not_declared_as_for_clients(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as kit:
        served = {*kit.broker.table.entries, *Nameserver(config_for(tmp_path)).table.entries}
    assert {code for code in served if NEEDS[code].is_for_clients} == set()
    not_served = {code for code, need in NEEDS.items() if "serves it nowhere" in (need.stock or "")}
    assert not_served.isdisjoint(served)


@pytest.mark.parametrize("code", ["UPDATE_AND_CREATE_ACL_CONFIG", "DELETE_ACL_CONFIG"])
def test_no_account_makes_itself_an_administrator(code: str) -> None:
    assert NEEDS[RequestCode[code]].is_admin


def test_our_own_requests_need_admin_rights_but_for_the_status() -> None:
    own = {code: need for code, need in NEEDS.items() if code >= OWN_CODES_FIRST}
    assert {RequestCode(code) for code, need in own.items() if not need.is_admin} == {
        RequestCode.HA_STATUS
    }


def resources(
    code: RequestCode, fields: dict[str, str] | None = None, body: bytes | None = None
) -> dict[str, int]:
    find = NEEDS[code].resources
    assert find is not None
    return dict(find(fields or {}, body))


SENDS = [("SEND_MESSAGE", "topic"), ("SEND_MESSAGE_V2", "b"), ("SEND_BATCH_MESSAGE", "b")]


@pytest.mark.parametrize(("code", "name"), SENDS)
def test_a_send_needs_pub_on_its_topic_and_sub_on_a_group_sent_back_to(
    code: str, name: str
) -> None:
    assert resources(RequestCode[code], {name: "T"}) == {"T": PUB}
    assert resources(RequestCode[code], {name: "%RETRY%g", "a": "x"}) == {"%RETRY%g": SUB}
    assert resources(RequestCode[code], {name: "%DLQ%g"}) == {"%DLQ%g": PUB}
    assert resources(RequestCode[code]) == {}


@pytest.mark.parametrize(
    ("code", "name"), [("SEND_REPLY_MESSAGE", "topic"), ("SEND_REPLY_MESSAGE_V2", "b")]
)
def test_a_reply_needs_pub_unless_it_goes_to_a_topic_for_replies(code: str, name: str) -> None:
    assert resources(RequestCode[code], {name: "Orders"}) == {"Orders": PUB}
    assert resources(RequestCode[code], {name: "DefaultCluster_REPLY_TOPIC"}) == {}


@pytest.mark.parametrize("code", ["PULL_MESSAGE", "UPDATE_CONSUMER_OFFSET"])
def test_consuming_needs_sub_on_topic_and_group(code: str) -> None:
    fields = {"topic": "T", "consumerGroup": "g"}
    assert resources(RequestCode[code], fields) == {"T": SUB, "%RETRY%g": SUB}


@pytest.mark.parametrize(
    ("code", "fields", "needed"),
    [
        ("QUERY_MESSAGE", {"topic": "T"}, {"T": SUB}),
        ("CONSUMER_SEND_MSG_BACK", {"group": "g"}, {"%RETRY%g": SUB}),
        ("UNREGISTER_CLIENT", {"consumerGroup": "g"}, {"%RETRY%g": SUB}),
        ("UNREGISTER_CLIENT", {"producerGroup": "g"}, {}),
        ("GET_CONSUMER_LIST_BY_GROUP", {"consumerGroup": "g"}, {"%RETRY%g": SUB}),
    ],
)
def test_requests_about_one_thing_need_sub_on_it(
    code: str, fields: dict[str, str], needed: dict[str, int]
) -> None:
    assert resources(RequestCode[code], fields) == needed


def test_a_heartbeat_needs_sub_on_all_that_its_consumers_subscribe_to() -> None:
    subscription = SubscriptionData(topic="T", sub_string="*")
    body = HeartbeatData(
        client_id="c",
        producer_data_set=(ProducerData(group_name="p"),),
        consumer_data_set=(
            ConsumerData(group_name="g", subscription_data_set=(subscription,)),
            ConsumerData(group_name="h"),
        ),
    )
    found = resources(RequestCode.HEART_BEAT, body=body.encode())
    assert found == {"%RETRY%g": SUB, "T": SUB, "%RETRY%h": SUB}


@pytest.mark.parametrize(
    ("code", "kind"),
    [("LOCK_BATCH_MQ", LockBatchRequestBody), ("UNLOCK_BATCH_MQ", UnlockBatchRequestBody)],
)
def test_locks_need_sub_on_the_group(
    code: str, kind: type[LockBatchRequestBody | UnlockBatchRequestBody]
) -> None:
    body = kind(
        consumer_group="g",
        client_id="c",
        mq_set=(MessageQueue(topic="T", broker_name="b", queue_id=0),),
    )
    assert resources(RequestCode[code], body=body.encode()) == {"%RETRY%g": SUB}


# --- the page for operators ----------------------------------------------------------------------

PAGE = (DOCS / "access.md").read_text()


def shown_need(code: RequestCode) -> str:
    need = NEEDS[code]
    if need.is_admin:
        return "admin"
    return need.shown or "an account"


@pytest.mark.parametrize("code", [code for code in RequestCode if not NEEDS[code].is_for_clients])
def test_the_page_tells_what_a_request_needs(code: RequestCode) -> None:
    row = re.search(rf"^\| {code.value} {code.name} \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    assert row is not None
    assert row.groups() == (shown_need(code), NEEDS[code].stock or "the same")
