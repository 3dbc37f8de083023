"""PULL_MESSAGE: subscriptions by a condition on properties (SQL92)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.remoting.bodies import SubscriptionData
from rmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.broker_frames import TOPIC, bodies_of, consumer, ext, pull, subscription
from tests.broker.broker_kit import part_broker

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.broker.broker_kit import PartBroker

ON: Final = {"enablePropertyFilter": "true"}
WAIT_MS: Final = 15_000
UNSUPPORTED: Final = "The broker does not support consumer to filter message by SQL92"
NO_FILTER_DATA: Final = (
    "The broker's consumer filter data is not exist!Your expression may be wrong!"
)


def sql(
    condition: str | None = "a > 5", offset: int = 0, *, wait_ms: int | None = None, opaque: int = 7
) -> bytes:
    """Return a pull by a condition, or by that of the group's heartbeat."""
    return pull(
        0,
        offset,
        expression=condition,
        expression_type="SQL92",
        wait_ms=wait_ms,
        version=1,
        opaque=opaque,
    )


def put_numbers(broker: PartBroker) -> None:
    for number in (3, 7, 5, 9):
        broker.put(b"%d" % number, a=str(number))
    broker.put(b"none")
    broker.put(b"text", a="text")


@pytest.mark.parametrize("condition", ["a > 5", None], ids=["in the request", "by heartbeat"])
async def test_a_condition_chooses_the_messages(condition: str | None, tmp_path: Path) -> None:
    async with part_broker(tmp_path, ON) as broker:
        put_numbers(broker)
        peer = await broker.join("a", consumer(subscription("a > 5", expression_type="SQL92")))
        answer = await peer.request(sql(condition))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
        assert bodies_of(answer) == [b"7", b"9"]
        assert ext(answer)["nextBeginOffset"] == "6"


@pytest.mark.parametrize("condition", ["a > 50", None], ids=["in the request", "by heartbeat"])
async def test_a_condition_without_a_match(condition: str | None, tmp_path: Path) -> None:
    async with part_broker(tmp_path, ON) as broker:
        put_numbers(broker)
        peer = await broker.join("a", consumer(subscription("a > 50", expression_type="SQL92")))
        answer = await peer.request(sql(condition))
        assert (answer.code, answer.remark) == (
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            "NO_MATCHED_MESSAGE",
        )
        assert ext(answer)["nextBeginOffset"] == "6"


@pytest.mark.parametrize("condition", ["a > 5", None], ids=["in the request", "by heartbeat"])
async def test_conditions_are_refused_unless_they_are_enabled(
    condition: str | None, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        put_numbers(broker)
        peer = await broker.join("a", consumer(subscription("a > 5", expression_type="SQL92")))
        answer = await peer.request(sql(condition))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, UNSUPPORTED)
        assert answer.fields == {}
        broker.update(enablePropertyFilter="true")
        assert (await peer.request(sql(condition))).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("settings", [ON, {}], ids=["enabled", "not enabled"])
@pytest.mark.parametrize("condition", ["a >", "a > 'x'", "a = NULL", ""])
async def test_a_request_with_a_condition_that_makes_no_sense(
    condition: str, settings: dict[str, str], tmp_path: Path
) -> None:
    async with part_broker(tmp_path, settings) as broker:
        answer = await broker.ask(sql(condition))
        assert (answer.code, answer.remark) == (
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed",
        )


@pytest.mark.parametrize("settings", [ON, {}], ids=["enabled", "not enabled"])
@pytest.mark.parametrize("condition", ["a >", "a > 'x'", ""])
async def test_a_heartbeat_with_a_condition_that_makes_no_sense(
    condition: str, settings: dict[str, str], tmp_path: Path
) -> None:
    async with part_broker(tmp_path, settings) as broker:
        data = SubscriptionData(
            topic=TOPIC, sub_string=condition, expression_type="SQL92", sub_version=1
        )
        peer = await broker.join("a", consumer(data))
        answer = await peer.request(sql(None))
        assert (answer.code, answer.remark) == (
            ResponseCode.FILTER_DATA_NOT_EXIST,
            NO_FILTER_DATA,
        )


@pytest.mark.parametrize("by_heartbeat", [False, True])
async def test_a_kind_of_expression_that_nobody_knows(by_heartbeat: bool, tmp_path: Path) -> None:
    async with part_broker(tmp_path, ON) as broker:
        data = SubscriptionData(
            topic=TOPIC, sub_string="//a", expression_type="XPATH", sub_version=1
        )
        peer = await broker.join("a", consumer(data))
        answer = await peer.request(
            pull(expression=None if by_heartbeat else "//a", expression_type="XPATH", opaque=7)
        )
        assert answer.code == (
            ResponseCode.FILTER_DATA_NOT_EXIST
            if by_heartbeat
            else ResponseCode.SUBSCRIPTION_PARSE_FAILED
        )


async def test_the_version_of_a_subscription_comes_before_its_condition(tmp_path: Path) -> None:
    async with part_broker(tmp_path, ON) as broker:
        data = SubscriptionData(
            topic=TOPIC, sub_string="a >", expression_type="SQL92", sub_version=1
        )
        peer = await broker.join("a", consumer(data))
        answer = await peer.request(pull(expression=None, version=2, opaque=7))
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST


@pytest.mark.parametrize("condition", ["a > 5", None], ids=["in the request", "by heartbeat"])
async def test_only_a_message_that_fulfils_the_condition_wakes(
    condition: str | None, tmp_path: Path
) -> None:
    async with part_broker(tmp_path, ON) as broker:
        peer = await broker.join("a", consumer(subscription("a > 5", expression_type="SQL92")))
        await broker.hold(peer, sql(condition, wait_ms=WAIT_MS))
        broker.put(b"3", a="3")
        broker.put(b"none")
        broker.put(b"text", a="text")
        assert await peer.ping() == []
        broker.put(b"7", a="7")
        answer = await peer.read()
        assert bodies_of(answer) == [b"7"]
        assert ext(answer)["nextBeginOffset"] == "4"
        assert broker.unanswered == 0


async def test_what_does_not_fulfil_the_condition_is_stepped_over_by_a_sweep(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with part_broker(tmp_path, ON) as broker:
        peer = broker.attach()
        await broker.hold(peer, sql(wait_ms=WAIT_MS))
        broker.put(b"3", a="3")
        await broker.pass_time(5)
        answer = await peer.read()
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert ext(answer)["nextBeginOffset"] == "1"


async def test_a_new_condition_of_the_group_counts_at_once(tmp_path: Path) -> None:
    async with part_broker(tmp_path, ON) as broker:
        put_numbers(broker)
        await broker.join("a", consumer(subscription("a > 5", expression_type="SQL92", version=1)))
        peer = await broker.join(
            "b", consumer(subscription("a < 5", expression_type="SQL92", version=2))
        )
        await peer.send(sql(None))
        while (answer := await peer.read()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            pass
        assert bodies_of(answer) == [b"3"]


async def test_a_condition_and_tags_of_two_groups_do_not_mix(tmp_path: Path) -> None:
    async with part_broker(tmp_path, ON) as broker:
        broker.put(b"one", tags="TagA", a="1")
        broker.put(b"nine", tags="TagB", a="9")
        by_tag = await broker.join("a", consumer(subscription("TagA"), group="tags"))
        by_condition = await broker.join(
            "b", consumer(subscription("a > 5", expression_type="SQL92"), group="conditions")
        )
        assert bodies_of(await by_tag.request(pull(group="tags", expression=None))) == [b"one"]
        assert bodies_of(await by_condition.request(pull(group="conditions", expression=None))) == [
            b"nine"
        ]
