"""The check of one request: its order, its refusals, and that nothing gets around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.access.accounts import Account
from rmq.access.document import read_document
from rmq.access.rules import AccessRefusedError, Rules
from rmq.access.signatures import ORDERS_MAX, SignatureChecks
from rmq.remoting.bodies import ConsumerData, HeartbeatData, SubscriptionData
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.header import ext_fields_of
from rmq.remoting.headers import (
    ConsumerSendMsgBackRequest,
    GetMaxOffsetRequest,
    PullMessageRequest,
    QueryMessageRequest,
    SendMessageRequestV2,
)
from rmq.remoting.signing import Credentials, SigningKey, signature_of
from rmq.settings.yaml_file import parse_yaml
from tests.access.access_kit import ACL, ADMIN, FORGER, STRANGER, USER, signed_frame

if TYPE_CHECKING:
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

HERE: Final = "192.0.2.7:40000"
KEY: Final = SigningKey("12345678")
SAYS: Final = "org.apache.rocketmq.acl.common.AclException: "


def rules_of(text: str = ACL) -> Rules:
    document = read_document(parse_yaml(text, "plain_acl.yml"), "plain_acl.yml", 0)
    return Rules(document.accounts, document.white_lists)


def command_of(frame: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(frame)
    (command,) = decoder.take(10)
    return command


def send(topic: str) -> SendMessageRequestV2:
    return SendMessageRequestV2(
        producer_group="p",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties="a\x01b\x02",
        reconsume_times=0,
        unit_mode=False,
    )


def refusal(
    credentials: Credentials | None,
    code: RequestCode,
    header: Header | None = None,
    body: bytes = b"",
    *,
    peer: str = HERE,
    rules: Rules | None = None,
    serialization: Serialization = Serialization.JSON,
) -> str | None:
    """Return why a request is refused, without what all refusals begin with."""
    frame = signed_frame(credentials, code, header, body, serialization=serialization)
    try:
        (rules or rules_of()).check(peer, command_of(frame))
    except AccessRefusedError as exc:
        refused = exc
    else:
        return None
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark.startswith(SAYS)
    return refused.remark.removeprefix(SAYS)


RUNTIME = RequestCode.GET_BROKER_RUNTIME_INFO
V2 = RequestCode.SEND_MESSAGE_V2


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize(
    ("credentials", "reason"),
    [
        (None, "No accessKey is configured"),
        (STRANGER, "No acl config for stranger"),
        (FORGER, "Check signature failed for accessKey=the-admin"),
        (USER, None),
        (ADMIN, None),
    ],
)
def test_a_request_needs_an_account_and_its_signature(
    credentials: Credentials | None, reason: str | None, serialization: Serialization
) -> None:
    assert refusal(credentials, RUNTIME, serialization=serialization) == reason
    header = GetMaxOffsetRequest(topic="T", queue_id=0)
    code = RequestCode.GET_MAX_OFFSET
    assert refusal(credentials, code, header, b"x", serialization=serialization) == reason


def test_an_account_without_signature_is_refused() -> None:
    frame = signed_frame(None, RUNTIME, extra={"AccessKey": ADMIN.access_key})
    with pytest.raises(AccessRefusedError, match="Check signature failed for accessKey=the-admin"):
        rules_of().check(HERE, command_of(frame))


@pytest.mark.parametrize(
    ("peer", "passes"),
    [
        ("10.10.103.4:1", True),
        ("10.10.104.4:1", False),
        ("[::1]:1", False),
        ("a name", False),
    ],
)
def test_a_global_white_list_needs_no_account(peer: str, passes: bool) -> None:
    rules = rules_of()
    for _ in range(2):  # once as a stranger, once as one that is known
        found = refusal(None, RequestCode.DELETE_TOPIC_IN_BROKER, peer=peer, rules=rules)
        assert (found is None) == passes


def test_an_ipv6_address_may_be_on_a_white_list() -> None:
    rules = rules_of(ACL.replace("10.10.103.*", "'::1'"))
    assert refusal(None, RUNTIME, peer="[::1]:40000", rules=rules) is None
    assert refusal(None, RUNTIME, peer="[::2]:40000", rules=rules) is not None


def test_an_account_is_not_signed_for_from_its_own_white_list() -> None:
    forged = Credentials(access_key=USER.access_key, secret_key="guessed-secret")
    assert refusal(forged, V2, send("Elsewhere"), peer="192.168.7.7:9") is None
    assert refusal(forged, V2, send("Elsewhere"), peer="192.168.7.8:9") is not None
    assert refusal(FORGER, V2, send("Elsewhere"), peer="192.168.7.7:9") is not None


@pytest.mark.parametrize(
    ("code", "header", "reason"),
    [
        (V2, send("Orders"), None),
        (V2, send("Both"), None),
        (V2, send("Nothing"), "No default permission for topic:Nothing"),
        (V2, send("Elsewhere"), "No default permission for topic:Elsewhere"),
        (V2, send("%RETRY%mine"), None),
        (V2, send("%RETRY%shut"), "No default permission for group:shut"),
        (
            RequestCode.SEND_BATCH_MESSAGE,
            send("Elsewhere"),
            "No default permission for topic:Elsewhere",
        ),
        (
            RequestCode.CONSUMER_SEND_MSG_BACK,
            ConsumerSendMsgBackRequest(offset=0, group="shut", delay_level=0),
            "No default permission for group:shut",
        ),
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            None,
            "Need admin permission for request code=17, but accessKey=the-user is not",
        ),
        (
            RequestCode.HA_PROMOTE,
            None,
            "Need admin permission for request code=9002, but accessKey=the-user is not",
        ),
    ],
)
def test_an_account_may_do_what_it_is_permitted(
    code: RequestCode, header: Header | None, reason: str | None
) -> None:
    assert refusal(USER, code, header) == reason
    assert refusal(ADMIN, code, header) is None


def test_what_is_remembered_of_an_account_is_bounded() -> None:
    rules = rules_of(ACL.replace("defaultTopicPerm: DENY", "defaultTopicPerm: PUB|SUB"))
    account = rules.accounts[USER.access_key]
    for topic in ("Elsewhere", "Elsewhere", "T" * 300, "Orders"):
        assert refusal(USER, V2, send(topic), rules=rules) is None
    assert account.passed == {(V2, "Elsewhere"), (V2, "Orders")}
    subscriptions = tuple(SubscriptionData(topic=f"T{n}", sub_string="*") for n in range(3))
    consumer = ConsumerData(group_name="mine", subscription_data_set=subscriptions)
    body = HeartbeatData(client_id="c", consumer_data_set=(consumer,)).encode()
    assert refusal(USER, RequestCode.HEART_BEAT, None, body, rules=rules) is None
    assert len(account.passed) == 2
    assert refusal(ADMIN, RequestCode.UPDATE_AND_CREATE_TOPIC, rules=rules) is None
    assert refusal(USER, V2, send("Nothing"), rules=rules) is not None


def test_anyone_with_an_account_may_send_traces() -> None:
    assert refusal(USER, V2, send("RMQ_SYS_TRACE_TOPIC")) is None
    pull = PullMessageRequest(
        consumer_group="mine",
        topic="RMQ_SYS_TRACE_TOPIC",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    )
    reason = "No default permission for topic:RMQ_SYS_TRACE_TOPIC"
    assert refusal(USER, RequestCode.PULL_MESSAGE, pull) == reason


def test_an_admin_with_permissions_of_its_own_has_no_more_than_these() -> None:
    rules = rules_of(ACL.replace("admin: true", "admin: true\n    topicPerms: [Orders=PUB]"))
    assert refusal(ADMIN, V2, send("Orders"), rules=rules) is None
    assert refusal(ADMIN, V2, send("Both"), rules=rules) == "No default permission for topic:Both"
    assert refusal(ADMIN, RequestCode.DELETE_TOPIC_IN_BROKER, rules=rules) is None


def test_a_heartbeat_is_checked_by_its_body() -> None:
    subscription = SubscriptionData(topic="Orders", sub_string="*")
    consumer = ConsumerData(group_name="mine", subscription_data_set=(subscription,))
    body = HeartbeatData(client_id="c", consumer_data_set=(consumer,)).encode()
    reason = "No default permission for topic:Orders"
    assert refusal(USER, RequestCode.HEART_BEAT, None, body) == reason
    assert refusal(USER, RequestCode.HEART_BEAT, None, body.replace(b"Orders", b"Both")) is None


@pytest.mark.parametrize("code", [RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff"])
def test_a_body_that_cannot_be_read_is_refused(code: RequestCode, body: bytes) -> None:
    assert refusal(USER, code, None, body) is not None


def test_a_long_body_must_be_plain_json() -> None:
    # Reading it leniently would take about a second, in which nothing else happens.
    groups = b",".join(b"{groupName:'mine',n:%d}" % number for number in range(30_000))
    body = b"{clientID:'c',consumerDataSet:[%b]}" % groups
    reason = refusal(USER, RequestCode.HEART_BEAT, None, body)
    assert reason == f"HeartbeatData: $: {len(body)} bytes that are not plain"


def test_fields_that_cannot_be_read_are_refused() -> None:
    header = b'{"code":28,"flag":0,"opaque":1,"version":409,"extFields":{"a":[[]],"b":"$"}}'
    frame = (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    with pytest.raises(AccessRefusedError):
        rules_of().check(HERE, command_of(frame))


def test_an_unknown_code_needs_admin_rights() -> None:
    for credentials, passes in ((USER, False), (ADMIN, True)):
        command = command_of(signed_frame(credentials, 7777))
        if passes:
            rules_of().check(HERE, command)
        else:
            with pytest.raises(AccessRefusedError, match="Need admin permission"):
                rules_of().check(HERE, command)


# --- who is an administrator ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("credentials", "is_admin"),
    [(None, False), (STRANGER, False), (FORGER, False), (USER, False), (ADMIN, True)],
)
def test_only_a_signature_makes_an_administrator(
    credentials: Credentials | None, is_admin: bool
) -> None:
    white = ACL.replace("10.10.103.*", "'*'")
    command = command_of(signed_frame(credentials, RequestCode.UPDATE_BROKER_CONFIG, body=b"a=b"))
    rules = rules_of(white)
    rules.check(HERE, command)  # the white list lets everything in
    assert rules.is_signed_by_admin(command) == is_admin


# --- signatures ----------------------------------------------------------------------------------


def test_the_signature_of_the_fact_sheet_is_right() -> None:
    checks = SignatureChecks()
    fields = {
        "AccessKey": "rocketmq2",
        "Signature": "GnET/KgUdZ/rKFkrDsT32OFgo9E=",
        "queueId": "0",
        "topic": "T",
    }
    for _ in range(2):
        assert checks.is_signed(fields, b"hello", KEY)
        assert not checks.is_signed(fields, b"hellp", KEY)
        assert not checks.is_signed(fields | {"topic": "U"}, b"hello", KEY)
        assert not checks.is_signed(fields, b"hello", SigningKey("12345679"))
    assert len(checks) == 1


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_query_by_unique_key_may_be_signed_with_its_mark_or_without(is_signed: bool) -> None:
    fields = {"AccessKey": "rocketmq2", "topic": "T", "_UNIQUE_KEY_QUERY": "true"}
    over = fields if is_signed else {k: v for k, v in fields.items() if k != "_UNIQUE_KEY_QUERY"}
    fields["Signature"] = signature_of(over, None, "12345678")
    assert SignatureChecks().is_signed(fields, None, KEY)
    forged = fields | {"topic": "U"}
    assert not SignatureChecks().is_signed(forged, None, KEY)


NAMES = st.dictionaries(st.text(max_size=5), st.text(max_size=8), max_size=8)


@given(NAMES, st.none() | st.binary(max_size=20), st.data())
def test_a_signature_is_right_for_the_fields_it_was_made_of_and_no_others(
    fields: dict[str, str], body: bytes | None, data: st.DataObject
) -> None:
    fields.pop("Signature", None)
    fields = {name: value.encode("utf-8", "replace").decode() for name, value in fields.items()}
    checks = SignatureChecks()
    signed = {**fields, "Signature": signature_of(fields, body, "12345678")}
    for _ in range(2):
        assert checks.is_signed(signed, body, KEY)
    order = data.draw(st.permutations(list(signed)))
    assert checks.is_signed({name: signed[name] for name in order}, body, KEY)
    assert not checks.is_signed(signed | {"x": "y", "y": "z"}, body, KEY)
    assert not checks.is_signed(signed, (body or b"") + b"!", KEY)
    assert not checks.is_signed(signed | {"Signature": "é"}, body, KEY)
    assert not checks.is_signed(fields, body, KEY)


def test_kinds_of_requests_are_remembered_only_if_signed_and_only_so_many() -> None:
    checks = SignatureChecks()
    for number in range(ORDERS_MAX + 10):
        fields = {"a": "1", f"b{number}": "2"}
        assert not checks.is_signed(fields | {"Signature": "x"}, None, KEY)
    assert len(checks) == 0
    for number in range(ORDERS_MAX + 10):
        fields = {"a": "1", f"b{number}": "2"}
        signature = signature_of(fields, None, "12345678")
        assert checks.is_signed(fields | {"Signature": signature}, None, KEY)
    assert len(checks) == ORDERS_MAX


def test_a_query_of_a_stock_client_is_let_in() -> None:
    # Stock 4.9.8 signs `_UNIQUE_KEY_QUERY`, and its own broker then refuses it.
    header = QueryMessageRequest(
        topic="Both", key="k", max_num=1, begin_timestamp=0, end_timestamp=1
    )
    fields = ext_fields_of(header, {"_UNIQUE_KEY_QUERY": "true", "AccessKey": USER.access_key})
    extra = {
        "_UNIQUE_KEY_QUERY": "true",
        "AccessKey": USER.access_key,
        "Signature": signature_of(fields, None, USER.secret_key),
    }
    rules_of().check(
        HERE, command_of(signed_frame(None, RequestCode.QUERY_MESSAGE, header, extra=extra))
    )


def test_no_secret_is_in_what_is_shown() -> None:
    (account, *_) = rules_of().accounts.values()
    assert isinstance(account, Account)
    assert "secret" not in repr(account).replace("secret_key", "")
