"""Pulls: what is asked, how answers are understood, and both with a real broker."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from rmq.client.core.consuming.offsets import fetch_offset
from rmq.client.core.consuming.pulls import (
    PullResult,
    PullStatus,
    pull,
    pull_request,
    read_pull_answer,
)
from rmq.client.core.flows import Answer, Ask
from rmq.client.trio.opening import open_client
from rmq.errors import BadAnswerError, ConnectionLostError, NoRouteError, ResponseError
from rmq.model.queues import MessageQueue
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.command import decode_header
from rmq.remoting.expressions import build_subscription
from rmq.remoting.header import ext_fields_of
from rmq.remoting.headers import PullMessageRequest, PullMessageResponse
from rmq.remoting.layout import FRAME_PREFIX
from tests.client.broker_messages import store
from tests.client.cluster_kit import cluster
from tests.client.flow_kit import Reply, Script, reply, routes_of
from tests.paths import DATA
from tests.store.built_records import build_record

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.client.core.flows import Flow
    from rmq.client.core.routes import RouteTable
    from rmq.client.tasks.client import Client

WIRE: Final = DATA / "wire"
QUEUE: Final = MessageQueue(topic="T", broker_name="broker-a", queue_id=1)
ALL: Final = build_subscription("T", "*", version=77)


def routes(**others: str) -> RouteTable:
    """The master at m, and slaves by `slave_<number>`."""
    slaves = {int(name.removeprefix("slave_")): address for name, address in others.items()}
    return routes_of("T", {"broker-a": {0: "m:1", **slaves}})


def asked(script: Script) -> PullMessageRequest:
    header = script.asks[-1].header
    assert isinstance(header, PullMessageRequest)
    return header


def answer(
    code: int = ResponseCode.SUCCESS, body: bytes | None = None, next_offset: int = 9
) -> Reply:
    header = PullMessageResponse(
        suggest_which_broker_id=1, next_begin_offset=next_offset, min_offset=2, max_offset=12
    )
    return reply(header, code=code, body=body)


NOTHING: Final = answer(ResponseCode.PULL_NOT_FOUND)


def push_pull(table: RouteTable, **options: Any) -> Flow[PullResult]:  # noqa: ANN401 - any option
    return pull(table, QUEUE, group="g", subscription=ALL, offset=7, **options)


# --- what is asked ---------------------------------------------------------------------------


def test_a_push_consumer_asks_as_stock_ones_do() -> None:
    script = Script(NOTHING)
    result = script.run(push_pull(routes()))
    (ask,) = script.asks
    assert (ask.address, ask.code, ask.timeout_s) == ("m:1", RequestCode.PULL_MESSAGE, 30.0)
    assert asked(script) == PullMessageRequest(
        consumer_group="g",
        topic="T",
        queue_id=1,
        queue_offset=7,
        max_msg_nums=32,
        sys_flag=0x2,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        subscription=None,
        sub_version=77,
        expression_type="TAG",
        broker_name="broker-a",
    )
    assert result == PullResult(PullStatus.NO_NEW, 9, 2, 12, [], 1)


def test_requests_are_those_that_stock_consumers_sent() -> None:
    seen: set[str] = set()
    for name in ("push", "pull", "orderly", "broadcast", "sql"):
        for line in (WIRE / f"{name}.jsonl").read_text().splitlines():
            frame = json.loads(line)
            if frame["name"] != "PULL_MESSAGE":
                continue
            sent = {key: value for key, value in frame["ext"].items() if key != "ReqT"}
            flags = int(sent["sysFlag"])
            sends_expression = bool(flags & 0x4)
            seen.add(f"{name} {flags:#x}")
            header = pull_request(
                MessageQueue(
                    topic=sent["topic"],
                    broker_name=sent["bname"],
                    queue_id=int(sent["queueId"]),
                ),
                group=sent["consumerGroup"],
                subscription=build_subscription(
                    sent["topic"],
                    sent.get("subscription", "x"),
                    sent["expressionType"],
                    int(sent["subVersion"]) or 5,
                ),
                offset=int(sent["queueOffset"]),
                max_messages=int(sent["maxMsgNums"]),
                suspend_s=int(sent["suspendTimeoutMillis"]) / 1000 if flags & 0x2 else 0,
                commit_offset=int(sent["commitOffset"]),
                sends_expression=sends_expression,
                is_lite=bool(flags & 0x10),
            )
            ours = ext_fields_of(header, {})
            if not flags & 0x2:
                # Stock pull consumers name a time even if the broker may not wait.
                ours["suspendTimeoutMillis"] = sent["suspendTimeoutMillis"]
            assert ours == sent
    assert {"push 0x2", "push 0x3", "pull 0x4"} <= seen


@pytest.mark.parametrize(
    ("options", "sys_flag"),
    [
        pytest.param({}, 0x2, id="nothing"),
        pytest.param({"suspend_s": 0}, 0x0, id="no wait"),
        pytest.param({"commit_offset": 5}, 0x3, id="commit"),
        pytest.param({"commit_offset": 0}, 0x2, id="commit 0"),
        pytest.param({"sends_expression": True}, 0x6, id="expression"),
        pytest.param({"sends_expression": True, "is_lite": True}, 0x16, id="lite"),
    ],
)
def test_flags(options: dict[str, Any], sys_flag: int) -> None:
    script = Script(NOTHING)
    script.run(push_pull(routes(), **options))
    assert asked(script).sys_flag == sys_flag


def test_the_expression_goes_along_with_version_0_if_it_names_tags() -> None:
    script = Script(NOTHING, NOTHING)
    tags = build_subscription("T", "a || b", version=8)
    script.run(pull(routes(), QUEUE, group="g", subscription=tags, offset=0, sends_expression=True))
    assert (asked(script).subscription, asked(script).sub_version) == ("a || b", 0)
    sql = build_subscription("T", "x > 1", "SQL92", 8)
    script.run(pull(routes(), QUEUE, group="g", subscription=sql, offset=0, sends_expression=True))
    assert (asked(script).subscription, asked(script).sub_version) == ("x > 1", 8)
    assert asked(script).expression_type == "SQL92"


@pytest.mark.parametrize(
    ("slaves", "wanted", "address"),
    [
        pytest.param({"slave_1": "s:1"}, 0, "m:1", id="master"),
        pytest.param({"slave_1": "s:1"}, 1, "s:1", id="slave"),
        pytest.param({"slave_2": "s:2"}, 1, "s:2", id="the next slave"),
        pytest.param({"slave_3": "s:3"}, 1, "m:1", id="no slave near"),
        pytest.param({}, 1, "m:1", id="no slave"),
    ],
)
def test_the_suggested_broker_is_asked(slaves: dict[str, str], wanted: int, address: str) -> None:
    script = Script(NOTHING)
    script.run(push_pull(routes(**slaves), broker_id=wanted, commit_offset=5))
    assert script.asks[0].address == address
    # Slaves are not told offsets.
    assert asked(script).sys_flag == (0x3 if address == "m:1" else 0x2)


def test_a_slave_stands_in_for_a_master_that_is_gone() -> None:
    script = Script(NOTHING)
    script.run(push_pull(routes_of("T", {"broker-a": {1: "s:1"}})))
    assert script.asks[0].address == "s:1"


def test_a_broker_nobody_knows_is_said() -> None:
    with pytest.raises(NoRouteError, match="topic T: no broker broker-a is known") as caught:
        Script().run(push_pull(routes_of("T", {"broker-b": {0: "m:1"}})))
    assert caught.value.topic == "T"


# --- what is answered ------------------------------------------------------------------------


def test_found_messages_are_decoded_and_filtered() -> None:
    body = (
        build_record(queue_offset=7)
        + build_record(queue_offset=8, properties=b"TAGS\x01Other")
        + build_record(queue_offset=9)
    )
    tags = build_subscription("T", "TagA")
    script = Script(answer(body=body, next_offset=11))
    result = script.run(pull(routes(), QUEUE, group="g", subscription=tags, offset=7))
    assert result.status is PullStatus.FOUND
    assert [it.queue_offset for it in result.messages] == [7, 9]
    assert all(it.queue is QUEUE for it in result.messages)
    assert (result.next_offset, result.min_offset, result.max_offset) == (11, 2, 12)
    assert result.suggested_broker_id == 1


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.PULL_NOT_FOUND, PullStatus.NO_NEW),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, PullStatus.NO_MATCH),
        (ResponseCode.PULL_OFFSET_MOVED, PullStatus.OFFSET_ILLEGAL),
    ],
)
def test_nothing_found_is_a_result(code: ResponseCode, status: PullStatus) -> None:
    result = Script(answer(code)).run(push_pull(routes()))
    assert result == PullResult(status, 9, 2, 12, [], 1)


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SYSTEM_ERROR,
        9999,
    ],
)
def test_every_other_code_is_an_error_that_has_it(code: int) -> None:
    with pytest.raises(ResponseError, match=r"PULL_MESSAGE to m:1: .*no, not now") as caught:
        Script(reply(code=code, remark="no, not now")).run(push_pull(routes()))
    assert caught.value.code == code


def test_what_the_call_fails_with_is_raised() -> None:
    lost = ConnectionLostError("m:1", "reset")
    with pytest.raises(ConnectionLostError) as caught:
        Script(lost).run(push_pull(routes()))
    assert caught.value is lost


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        pytest.param(reply(), "PullMessageResponse", id="no header"),
        pytest.param(answer(), "none is there", id="no body"),
        pytest.param(answer(body=b""), "none is there", id="empty body"),
        pytest.param(
            answer(body=b"rubbish"),
            "topic T, queue 1, offset 7: 7 bytes after the last record",
            id="rubbish",
        ),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(given: Reply, reason: str) -> None:
    with pytest.raises(BadAnswerError, match=reason):
        Script(given).run(push_pull(routes()))


def test_what_is_sound_before_a_bad_record_is_not_held_up() -> None:
    sound = build_record(queue_offset=7) + build_record(queue_offset=8)
    result = Script(answer(body=sound + b"rubbish", next_offset=39)).run(push_pull(routes()))
    assert [it.queue_offset for it in result.messages] == [7, 8]
    # And the next pull begins with what is bad, and fails.
    assert result.next_offset == 9


def test_answers_of_a_stock_broker_are_understood() -> None:
    pulls: dict[tuple[int, int], Any] = {}
    found = 0
    for line in (WIRE / "pull.jsonl").read_text().splitlines():
        frame = json.loads(line)
        key = frame["conn"], frame["opaque"]
        if frame["name"] == "PULL_MESSAGE":
            pulls[key] = frame["ext"]
        elif frame["kind"] == "response" and key in pulls:
            asked_ext = pulls.pop(key)
            queue = MessageQueue(
                topic=asked_ext["topic"],
                broker_name=asked_ext["bname"],
                queue_id=int(asked_ext["queueId"]),
            )
            raw = base64.b64decode(frame["frame"])
            body_at = len(raw) - frame["bodyLen"]
            command = decode_header(raw[FRAME_PREFIX.size : body_at], 0)
            command.body = raw[body_at:] or None
            result = read_pull_answer(
                Answer(Ask("m:1", RequestCode.PULL_MESSAGE), command),
                queue,
                group="g",
                subscription=build_subscription(queue.topic, asked_ext["subscription"]),
            )
            assert result.status.value == frame["code"]
            assert result.next_offset == int(frame["ext"]["nextBeginOffset"])
            offsets = [message.queue_offset for message in result.messages]
            assert offsets == sorted(offsets)
            for message in result.messages:
                found += 1
                assert message.topic == queue.topic
                assert message.body_error is None
                assert int(asked_ext["queueOffset"]) <= message.queue_offset < result.next_offset
    assert found > 20


# --- a real broker ---------------------------------------------------------------------------


async def put(client: Client, queue: MessageQueue, *bodies: bytes, tag: str = "TagA") -> None:
    broker = client.routes.address_of(queue.broker_name)
    assert broker is not None
    for body in bodies:
        await client.run(store(broker.address, queue, body, properties=f"TAGS\x01{tag}"))


async def test_messages_are_pulled_from_a_broker(tmp_path: Path) -> None:
    queue = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=1)
    tags = build_subscription("Orders", "TagA")

    def one(offset: int, **options: Any) -> Flow[PullResult]:  # noqa: ANN401 - any option
        return pull(
            client.routes,
            queue,
            group="g",
            subscription=tags,
            offset=offset,
            sends_expression=True,
            suspend_s=0,
            **options,
        )

    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        await it.create_topic("Orders")
        await client.route("Orders")
        await put(client, queue, b"0", b"1")
        await put(client, queue, b"2", tag="TagB")
        await put(client, queue, b"3")
        result = await client.run(one(0))
        assert result.status is PullStatus.FOUND
        assert [(m.queue_offset, m.body) for m in result.messages] == [
            (0, b"0"),
            (1, b"1"),
            (3, b"3"),
        ]
        assert (result.next_offset, result.min_offset, result.max_offset) == (4, 0, 4)
        result = await client.run(one(1, max_messages=1))
        assert [m.body for m in result.messages] == [b"1"]
        assert result.next_offset == 2
        assert (await client.run(one(4))).status is PullStatus.NO_NEW
        illegal = await client.run(one(40))
        assert (illegal.status, illegal.next_offset) == (PullStatus.OFFSET_ILLEGAL, 4)
        # What is committed on the way is there.
        await client.run(one(3, commit_offset=3))
        assert await client.run(fetch_offset(client.routes, "g", queue)) == 3
        with pytest.raises(ResponseError) as caught:
            await client.run(
                pull(client.routes, queue, group="never-seen", subscription=tags, offset=0)
            )
        assert caught.value.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_broker_waits_for_messages_with_the_consumer(tmp_path: Path) -> None:
    queue = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=0)
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        await it.create_topic("Orders")
        await client.route("Orders")
        results: list[PullResult] = []

        async def wait() -> None:
            flow = pull(
                client.routes,
                queue,
                group="g",
                subscription=build_subscription("Orders", "*"),
                offset=0,
                sends_expression=True,
            )
            results.append(await client.run(flow))

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await put(client, queue, b"hello")
        assert [m.body for m in results[0].messages] == [b"hello"]
