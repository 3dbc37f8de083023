"""Messages given back: by the broker that has them, or sent to the retry topic through another."""

from __future__ import annotations

from typing import Final

import pytest

from rmq.client.core.consuming.send_back import TO_DEAD_LETTERS, resend, send_back
from rmq.client.core.received import ReceivedMessage, decode_messages
from rmq.errors import ConnectFailedError, NoRouteError, ResponseError
from rmq.model.properties import decode_properties
from rmq.model.queues import MessageQueue
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import ConsumerSendMsgBackRequest, SendMessageRequestV2
from tests.client.flow_kit import Script, reply, routes_of
from tests.store.built_records import build_record

TOPIC: Final = "Orders"
QUEUE: Final = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=3)
BROKERS: Final = {"broker-a": {0: "a:1"}, "broker-b": {0: "b:1", 1: "b:2"}}
GONE: Final = ConnectFailedError("a:1", "refused")


def message(
    properties: bytes = b"UNIQ_KEY\x01U1\x02TAGS\x01x",
    *,
    reconsume_times: int = 2,
    sys_flag: int = 0,
) -> ReceivedMessage:
    record = build_record(
        topic=TOPIC.encode(),
        properties=properties,
        reconsume_times=reconsume_times,
        sys_flag=sys_flag,
        physical_offset=4711,
    )
    (it,) = decode_messages(record, QUEUE)
    return it


def send_header(script: Script) -> SendMessageRequestV2:
    header = script.asks[-1].header
    assert isinstance(header, SendMessageRequestV2)
    return header


def test_the_broker_that_has_a_message_is_asked_to_deliver_it_again() -> None:
    script = Script(reply())
    script.run(
        send_back(
            routes_of(TOPIC, BROKERS),
            message(),
            group="g",
            delay_level=4,
            reconsume_max=16,
            now_ms=1,
        )
    )
    (ask,) = script.asks
    assert (ask.address, ask.code, ask.timeout_s) == ("a:1", RequestCode.CONSUMER_SEND_MSG_BACK, 5)
    assert ask.header == ConsumerSendMsgBackRequest(
        offset=4711,
        group="g",
        broker_name="broker-a",
        delay_level=4,
        origin_msg_id="U1",
        origin_topic=TOPIC,
        max_reconsume_times=16,
    )


@pytest.mark.parametrize(
    "failure",
    [GONE, reply(code=ResponseCode.SYSTEM_ERROR, remark="gone")],
    ids=["away", "refused"],
)
def test_if_it_cannot_the_message_is_sent_through_another(failure: object) -> None:
    script = Script(failure, reply())  # type: ignore[arg-type]
    script.run(
        send_back(
            routes_of(TOPIC, BROKERS),
            message(b"UNIQ_KEY\x01U1\x02TRAN_MSG\x01true\x02own\x01v"),
            group="g",
            delay_level=0,
            reconsume_max=16,
            now_ms=99,
        )
    )
    assert script.asks[-1].address == "b:1"
    assert script.asks[-1].code is RequestCode.SEND_MESSAGE_V2
    assert script.asks[-1].body == b"hello"
    header = send_header(script)
    assert (header.topic, header.producer_group) == ("%RETRY%g", "CLIENT_INNER_PRODUCER")
    assert (header.reconsume_times, header.max_reconsume_times) == (3, 16)
    assert (header.born_timestamp, header.flag, header.broker_name) == (99, 7, "broker-b")
    assert decode_properties((header.properties or "").encode()) == {
        "UNIQ_KEY": "U1",
        "own": "v",
        "RETRY_TOPIC": TOPIC,
        "ORIGIN_MESSAGE_ID": message().offset_message_id,
        "DELAY": "5",
    }


def test_the_own_broker_is_tried_last_and_what_it_says_is_raised() -> None:
    script = Script(
        GONE, ConnectFailedError("b:1", "refused"), reply(code=ResponseCode.NO_PERMISSION)
    )
    with pytest.raises(ResponseError) as caught:
        script.run(
            send_back(
                routes_of(TOPIC, BROKERS),
                message(),
                group="g",
                delay_level=0,
                reconsume_max=16,
                now_ms=1,
            )
        )
    assert [ask.address for ask in script.asks] == ["a:1", "b:1", "a:1"]
    assert caught.value.code == ResponseCode.NO_PERMISSION


def test_without_a_master_it_stays_with_the_consumer() -> None:
    routes = routes_of(TOPIC, {"broker-a": {1: "a:2"}})
    with pytest.raises(NoRouteError, match="no master"):
        Script().run(
            send_back(routes, message(), group="g", delay_level=0, reconsume_max=16, now_ms=1)
        )


@pytest.mark.parametrize("code", [0, 10, 11, 12])
def test_a_message_that_is_stored_at_all_is_sent(code: int) -> None:
    script = Script(GONE, reply(code=code))
    script.run(
        send_back(
            routes_of(TOPIC, BROKERS),
            message(),
            group="g",
            delay_level=7,
            reconsume_max=16,
            now_ms=1,
        )
    )
    assert "DELAY\x017" in (send_header(script).properties or "")


def test_a_dead_letter_that_is_sent_has_had_all_its_rounds() -> None:
    script = Script(GONE, reply())
    script.run(
        send_back(
            routes_of(TOPIC, BROKERS),
            message(reconsume_times=1),
            group="g",
            delay_level=TO_DEAD_LETTERS,
            reconsume_max=16,
            now_ms=1,
        )
    )
    assert (send_header(script).reconsume_times, send_header(script).max_reconsume_times) == (
        16,
        16,
    )


def test_a_message_keeps_its_origin_its_compression_and_its_level_in_bounds() -> None:
    script = Script(reply())
    script.run(
        resend(
            routes_of(TOPIC, BROKERS),
            message(b"ORIGIN_MESSAGE_ID\x01O1", reconsume_times=40, sys_flag=0x1 | 0x300 | 0x8),
            group="g",
            delay_level=0,
            reconsume_times=41,
            reconsume_max=100,
            now_ms=1,
        )
    )
    header = send_header(script)
    assert header.sys_flag == 0x301
    properties = decode_properties((header.properties or "").encode())
    assert (properties["ORIGIN_MESSAGE_ID"], properties["DELAY"]) == ("O1", "18")
