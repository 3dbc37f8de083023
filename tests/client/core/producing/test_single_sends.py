"""One send as a flow: which queue, how many attempts, what is retried, and what is said at last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.client.core.messages import Message, SendStatus
from rmq.client.core.nameservers import Nameservers
from rmq.client.core.producing.config import ProducerConfig
from rmq.client.core.producing.delivery import BatchFailedError, is_retried
from rmq.client.core.producing.outbound import prepare
from rmq.client.core.producing.single_sends import Sends
from rmq.client.core.producing.unique_keys import UniqueKeys
from rmq.client.core.routes import RouteTable
from rmq.errors import (
    BadAnswerError,
    ClientClosedError,
    ClientError,
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
    IllegalMessageError,
    NoNameserverError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
    SendFailedError,
)
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import BrokerData, QueueData, TopicRouteData
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.header import Header
from rmq.remoting.headers import SendMessageRequestV2, SendMessageResponse
from tests.client.flow_kit import Script, reply, routes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.client.core.flows import Ask, Flow
    from rmq.client.core.messages import SendResult
    from rmq.client.core.producing.outbound import OutboundMessage
    from tests.client.flow_kit import Reply

TWO: Final = {"a": {0: "a:1"}, "b": {0: "b:1"}}
ONE: Final = {"a": {0: "a:1"}}
LONE_SLAVE: Final = {"a": {1: "a:2"}}
PROMOTED: Final = {"a": {0: "a:2", 1: "a:1"}}
LOST: Final = ConnectionLostError("a:1", "reset")
REFUSED: Final = ConnectFailedError("a:1", "refused")


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def run(self, script: Script, flow: Flow[SendResult]) -> SendResult:
        """Run a flow whose pauses take their time."""
        script.on_pause = self._pass
        return script.run(flow)

    def _pass(self, seconds: float) -> None:
        self.now_s += seconds


def stored(code: int = ResponseCode.SUCCESS, queue_id: int = 0) -> Reply:
    return reply(
        SendMessageResponse(
            msg_id="0A00000100002A9F0000000000000400", queue_id=queue_id, queue_offset=3
        ),
        code=code,
    )


def route_of(brokers: dict[str, dict[int, str]], *, perm: int = 6) -> Reply:
    body = TopicRouteData(
        queue_datas=tuple(
            QueueData(broker_name=name, read_queue_nums=8, write_queue_nums=8, perm=perm)
            for name in brokers
        ),
        broker_datas=tuple(
            BrokerData(cluster="c", broker_name=name, broker_addrs=dict(addresses))
            for name, addresses in brokers.items()
        ),
    ).encode()
    return reply(body=body)


NO_TOPIC: Final = reply(code=ResponseCode.TOPIC_NOT_EXIST)
NO_MASTER: Final = reply(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark="a slave")


def sends(
    brokers: dict[str, dict[int, str]] | None = None,
    *,
    clock: Clock | None = None,
    first: int = -1,
    on_stale: Callable[[str], object] | None = None,
    **settings: object,
) -> Sends:
    config = ProducerConfig(group="g", **settings)  # type: ignore[arg-type]
    routes = RouteTable() if brokers is None else routes_of("T", brokers)
    return Sends(
        config,
        routes=routes,
        nameservers=Nameservers(["n:1"]),
        now=clock or Clock(),
        now_ms=lambda: 1_700_000_000_000,
        first=first,
        on_stale=on_stale,
    )


def outbound() -> OutboundMessage:
    return prepare(
        Message("T", b"hello"),
        unique_keys=UniqueKeys(bytes(4), 1, 2),
        now_ms=1,
        compress_above=4096,
        compress_level=5,
        bytes_max=4096,
    )


def header_of(ask: Ask) -> SendMessageRequestV2:
    assert isinstance(ask.header, SendMessageRequestV2)
    return ask.header


# --- well ------------------------------------------------------------------------------------


def test_a_message_goes_to_the_next_queue() -> None:
    it = sends(TWO)
    for number in range(8):
        script = Script(stored(queue_id=number % 4))
        result = script.run(it.send(outbound()))
        (ask,) = script.asks
        broker = "ab"[number // 4]
        assert (ask.address, ask.code, ask.body) == (
            f"{broker}:1",
            RequestCode.SEND_MESSAGE_V2,
            b"hello",
        )
        header = header_of(ask)
        assert (header.queue_id, header.broker_name) == (number % 4, broker)
        assert (header.producer_group, header.default_topic_queue_nums) == ("g", 4)
        assert result.queue == MessageQueue(topic="T", broker_name=broker, queue_id=number % 4)


def test_a_topic_that_nobody_has_yet_is_sent_to_where_it_will_be_made() -> None:
    it = sends()
    script = Script(NO_TOPIC, route_of(ONE), stored())
    assert script.run(it.send(outbound())).is_ok
    assert [ask.code for ask in script.asks] == [
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.SEND_MESSAGE_V2,
    ]
    # Its route is known from now on.
    again = Script(stored())
    assert again.run(it.send(outbound())).is_ok
    assert len(again.asks) == 1


@pytest.mark.parametrize(
    "status",
    [
        SendStatus.FLUSH_DISK_TIMEOUT,
        SendStatus.FLUSH_SLAVE_TIMEOUT,
        SendStatus.SLAVE_NOT_AVAILABLE,
    ],
)
def test_stored_but_not_as_well_as_it_should_be_is_a_result(status: SendStatus) -> None:
    code = ResponseCode[status.name]
    script = Script(stored(code))
    result = script.run(sends(TWO).send(outbound()))
    assert (result.status, result.is_ok) == (status, False)


def test_a_one_way_send_is_told_and_not_asked() -> None:
    script = Script()
    script.run(sends(TWO).send_oneway(outbound()))
    (tell,) = script.tells
    assert (tell.address, tell.body) == ("a:1", b"hello")


# --- retries ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        REFUSED,
        LOST,
        reply(code=ResponseCode.SYSTEM_ERROR),
        reply(code=ResponseCode.SERVICE_NOT_AVAILABLE),
        reply(code=ResponseCode.NO_PERMISSION),
        reply(code=ResponseCode.TOPIC_NOT_EXIST),
        reply(code=204),
        reply(code=205),
        pytest.param(reply(), id="garbage"),
    ],
)
def test_a_failure_is_retried_on_another_broker(failure: Reply | ClientError) -> None:
    script = Script(failure, stored())
    assert script.run(sends(TWO).send(outbound())).is_ok
    assert [ask.address for ask in script.asks] == ["a:1", "b:1"]


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    ],
)
def test_a_no_that_others_would_repeat_is_not_retried(code: int) -> None:
    script = Script(reply(code=code, remark="no"))
    with pytest.raises(SendFailedError, match=r"1 attempt,.*stored nowhere.*no") as caught:
        script.run(sends(TWO).send(outbound()))
    ((broker, error),) = caught.value.attempts
    assert broker == "a"
    assert isinstance(error, ResponseError)
    assert error.code == code
    assert not caught.value.may_be_stored


def test_three_attempts_are_made_and_all_are_told() -> None:
    script = Script(LOST, ConnectFailedError("b:1", "refused"), reply(code=1, remark="broken"))
    with pytest.raises(
        SendFailedError, match="3 attempts, it may be stored nevertheless"
    ) as caught:
        script.run(sends(TWO).send(outbound()))
    script.assert_done()
    assert [broker for broker, _ in caught.value.attempts] == ["a", "b", "a"]
    assert caught.value.may_be_stored
    assert caught.value.topic == "T"
    assert caught.value.peer == "a:1"


def test_retries_can_be_switched_off() -> None:
    with pytest.raises(SendFailedError, match="1 attempt,"):
        Script(LOST).run(sends(TWO, retries=0).send(outbound()))


def test_a_queue_of_the_callers_choice_is_not_left() -> None:
    queue = MessageQueue(topic="T", broker_name="b", queue_id=1)
    script = Script(LOST)
    with pytest.raises(SendFailedError, match="1 attempt,"):
        script.run(sends(TWO).send(outbound(), queue=queue))
    (ask,) = script.asks
    assert (ask.address, header_of(ask).queue_id) == ("b:1", 1)


def test_a_queue_whose_broker_is_away_is_said_to_be() -> None:
    queue = MessageQueue(topic="T", broker_name="gone", queue_id=1)
    with pytest.raises(SendFailedError, match=r"gone: .*has no master now") as caught:
        Script().run(sends(TWO).send(outbound(), queue=queue))
    assert not caught.value.may_be_stored
    with pytest.raises(NoRouteError, match="has no master now"):
        Script().run(sends(TWO).send_oneway(outbound(), queue=queue))


def test_an_only_broker_that_is_gone_is_looked_for_again() -> None:
    script = Script(LOST, route_of({"a": {0: "a:2"}}), stored())
    assert script.run(sends(ONE).send(outbound())).is_ok
    assert [ask.address for ask in script.asks] == ["a:1", "n:1", "a:2"]


@pytest.mark.parametrize(
    "answer",
    [NO_TOPIC, ConnectFailedError("n:1", "refused"), route_of(ONE, perm=4)],
    ids=["no-topic", "no-nameserver", "not-writable"],
)
def test_if_it_is_not_found_it_is_tried_where_it_was(answer: Reply | ClientError) -> None:
    script = Script(LOST, answer, stored())
    assert script.run(sends(ONE).send(outbound())).is_ok
    assert [ask.address for ask in script.asks] == ["a:1", "n:1", "a:1"]


def test_not_good_enough_may_be_retried() -> None:
    script = Script(stored(ResponseCode.FLUSH_SLAVE_TIMEOUT), stored())
    result = script.run(sends(TWO, retries_when_not_ok=True).send(outbound()))
    assert result.is_ok
    assert [ask.address for ask in script.asks] == ["a:1", "b:1"]


def test_not_good_enough_is_better_than_nothing() -> None:
    script = Script(stored(ResponseCode.FLUSH_SLAVE_TIMEOUT), LOST, reply(code=1))
    result = script.run(sends(TWO, retries_when_not_ok=True).send(outbound()))
    assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT
    script.assert_done()


def test_a_broker_that_failed_is_left_alone_for_its_time() -> None:
    clock = Clock()
    it = sends(TWO, clock=clock, avoids_slow_brokers=True)
    Script(REFUSED, stored()).run(it.send(outbound()))
    for _ in range(8):
        script = Script(stored())
        script.run(it.send(outbound()))
        assert script.asks[0].address == "b:1"
    clock.now_s = 600.0
    addresses = set()
    for _ in range(8):
        script = Script(stored())
        script.run(it.send(outbound()))
        addresses.add(script.asks[0].address)
    assert addresses == {"a:1", "b:1"}


# --- waiting for a master --------------------------------------------------------------------


def test_a_broker_that_is_no_master_any_longer_is_waited_for() -> None:
    clock = Clock()
    script = Script(NO_MASTER, route_of(ONE), NO_MASTER, route_of(PROMOTED), stored())
    assert clock.run(script, sends(ONE, clock=clock).send(outbound())).is_ok
    assert [ask.address for ask in script.asks] == ["a:1", "n:1", "a:1", "n:1", "a:2"]
    assert script.pauses == [0.05], "the route is asked for at once, then after a pause"


def test_a_master_is_waited_for_longer_each_time_and_no_longer_than_the_send_may_take() -> None:
    clock = Clock()
    script = Script(*[each for _ in range(20) for each in (NO_MASTER, route_of(ONE))])
    with pytest.raises(SendFailedError, match=r"stored nowhere: a: .*code 14") as caught:
        clock.run(script, sends(ONE, clock=clock, retries=0).send(outbound()))
    assert script.pauses[:6] == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]
    assert sum(script.pauses) == pytest.approx(3.0)
    assert len(caught.value.attempts) == 1, "one after the other at the same broker counts once"
    assert not caught.value.may_be_stored


def test_a_queue_of_the_callers_choice_waits_for_its_master() -> None:
    queue = MessageQueue(topic="T", broker_name="a", queue_id=1)
    clock = Clock()
    script = Script(NO_MASTER, route_of(PROMOTED | {"b": {0: "b:1"}}), stored())
    it = sends(TWO, clock=clock)
    assert clock.run(script, it.send(outbound(), queue=queue)).is_ok
    assert [ask.address for ask in script.asks] == ["a:1", "n:1", "a:2"]
    assert [header_of(ask).queue_id for ask in script.asks[::2]] == [1, 1]


def test_a_name_with_slaves_only_is_waited_for_and_none_of_them_is_sent_to() -> None:
    clock = Clock()
    routes = [route_of(LONE_SLAVE)] * 3
    script = Script(*routes, route_of(PROMOTED), stored())
    assert clock.run(script, sends(clock=clock).send(outbound())).is_ok
    assert [ask.address for ask in script.asks] == ["n:1"] * 4 + ["a:2"]
    # Also when it was known before, and the master is gone meanwhile.
    for failure in (REFUSED, LOST):
        script = Script(failure, *routes, route_of(PROMOTED), stored())
        assert clock.run(script, sends(ONE, clock=clock).send(outbound())).is_ok
        assert [ask.address for ask in script.asks] == ["a:1"] + ["n:1"] * 4 + ["a:2"]


def test_a_master_that_refuses_connections_is_waited_for_if_it_has_a_slave() -> None:
    clock = Clock()
    known = {"a": {0: "a:1", 1: "a:2"}}
    again = [each for _ in range(5) for each in (REFUSED, route_of(known))]
    script = Script(*again, REFUSED, route_of(PROMOTED), stored())
    assert clock.run(script, sends(known, clock=clock).send(outbound())).is_ok


def test_a_topic_that_gets_no_master_in_time_is_said_to_have_none() -> None:
    clock = Clock()
    with pytest.raises(NoRouteError, match="none of its queues takes messages now"):
        clock.run(Script(*[route_of(LONE_SLAVE)] * 20), sends(clock=clock).send(outbound()))
    assert clock.now_s == pytest.approx(3.0)


def test_a_message_in_doubt_is_not_sent_again_to_its_queue() -> None:
    queue = MessageQueue(topic="T", broker_name="a", queue_id=1)
    script = Script(LOST)
    with pytest.raises(SendFailedError, match="may be stored"):
        script.run(sends({"a": {0: "a:1", 1: "a:2"}}).send(outbound(), queue=queue))


class Names(Header, frozen=True, kw_only=True):
    """What a broker adds to a refusal if it knows the master."""

    master_addr: str


def no_master_but(address: str) -> Reply:
    """A broker refuses a message and names the master."""
    return reply(Names(master_addr=address), code=ResponseCode.SERVICE_NOT_AVAILABLE)


PAIR: Final = {"a": {0: "a:1", 1: "a:2"}}


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(route_of(PAIR), id="it still lists the old one"),
        pytest.param(route_of({"a": {1: "a:2", 2: "a:1"}}), id="it lists slaves only"),
        pytest.param(ConnectionLostError("n:1", "reset"), id="it does not answer"),
    ],
)
@pytest.mark.parametrize("queue_id", [None, 1], ids=["any queue", "a queue"])
def test_a_master_that_was_named_is_tried_if_the_nameserver_does_not_know_it_yet(
    told: Reply | ClientError, queue_id: int | None
) -> None:
    clock = Clock()
    script = Script(no_master_but("a:2"), told, stored())
    queue = None
    if queue_id is not None:
        queue = MessageQueue(topic="T", broker_name="a", queue_id=queue_id)
    assert clock.run(script, sends(PAIR, clock=clock).send(outbound(), queue=queue)).is_ok
    assert [ask.address for ask in script.asks] == ["a:1", "n:1", "a:2"]
    assert script.pauses == []


def test_an_address_that_no_nameserver_has_told_is_not_dialled() -> None:
    clock = Clock()
    for stranger in ("evil:1", "b:2"):
        known = PAIR | {"b": {0: "b:1", 1: "b:2"}}
        script = Script(no_master_but(stranger), route_of(known), stored())
        it = sends(known, clock=clock)
        queue = MessageQueue(topic="T", broker_name="a", queue_id=1)
        assert clock.run(script, it.send(outbound(), queue=queue)).is_ok
        assert [ask.address for ask in script.asks] == ["a:1", "n:1", "a:1"]


def test_the_master_that_a_nameserver_lists_counts_more_than_one_that_was_named() -> None:
    clock = Clock()
    script = Script(no_master_but("a:2"), route_of({"a": {0: "a:3", 1: "a:2"}}), stored())
    assert clock.run(script, sends(PAIR, clock=clock).send(outbound())).is_ok
    assert [ask.address for ask in script.asks] == ["a:1", "n:1", "a:3"]


def test_a_master_that_was_named_is_tried_once_for_each_refusal() -> None:
    clock = Clock()
    told = route_of(PAIR)
    script = Script(
        *(no_master_but("a:2"), told, no_master_but("a:1"), told) * 4,
        *(NO_MASTER, told) * 20,
    )
    with pytest.raises(SendFailedError, match="stored nowhere"):
        clock.run(script, sends(PAIR, clock=clock).send(outbound()))
    addresses = [ask.address for ask in script.asks if ask.address != "n:1"]
    assert addresses[:9] == ["a:1", "a:2"] * 4 + ["a:1"]
    assert set(addresses[8:]) == {"a:1"}
    assert sum(script.pauses) == pytest.approx(3.0)


def test_other_brokers_are_tried_before_a_master_is_waited_for() -> None:
    clock = Clock()
    stale: list[str] = []
    it = sends(TWO, clock=clock, on_stale=stale.append)
    script = Script(NO_MASTER, stored())
    assert clock.run(script, it.send(outbound())).is_ok
    assert [ask.address for ask in script.asks] == ["a:1", "b:1"]
    assert stale == ["T"], "its route is asked for in the background"
    script = Script(NO_MASTER, NO_MASTER, route_of(TWO), stored())
    assert clock.run(script, it.send(outbound())).is_ok
    assert sorted(ask.address for ask in script.asks[:2]) == ["a:1", "b:1"]


def test_a_name_that_gets_another_master_is_not_left_alone_as_one_that_failed() -> None:
    clock = Clock()
    it = sends(TWO, clock=clock, avoids_slow_brokers=True)
    assert clock.run(Script(NO_MASTER, stored()), it.send(outbound())).is_ok
    clock.now_s += 0.6
    addresses = set()
    for _ in range(8):
        script = Script(stored())
        clock.run(script, it.send(outbound()))
        addresses.add(script.asks[0].address)
    assert addresses == {"a:1", "b:1"}


def test_after_a_send_without_an_answer_the_route_is_asked_for_before_the_next() -> None:
    for told, address in (
        (route_of(PROMOTED), "a:2"),
        (ConnectionLostError("n:1", "reset"), "a:1"),
        (route_of({"a": {0: "a:3"}}), "a:3"),
    ):
        it = sends(PAIR, retries=0)
        with pytest.raises(SendFailedError, match="no answer within"):
            Script(RequestTimeoutError("a:1", "SEND", 3.0)).run(it.send(outbound()))
        script = Script(told, stored(), stored())
        assert script.run(it.send(outbound())).is_ok
        assert script.run(it.send(outbound())).is_ok
        assert [ask.address for ask in script.asks] == ["n:1", address, address]


def test_after_a_send_without_an_answer_a_name_without_a_master_is_waited_for() -> None:
    clock = Clock()
    it = sends(PAIR, clock=clock, retries=0)
    with pytest.raises(SendFailedError, match="no answer within"):
        clock.run(Script(RequestTimeoutError("a:1", "SEND", 3.0)), it.send(outbound()))
    script = Script(route_of(LONE_SLAVE), route_of(LONE_SLAVE), route_of(PROMOTED), stored())
    assert clock.run(script, it.send(outbound())).is_ok
    assert [ask.address for ask in script.asks] == ["n:1"] * 3 + ["a:2"]


# --- time ------------------------------------------------------------------------------------


def test_all_attempts_share_one_timeout() -> None:
    clock = Clock()

    def late(ask: Ask) -> Reply:
        clock.now_s += 2.0
        return reply(code=ResponseCode.SYSTEM_ERROR)

    script = Script(late, stored())
    script.run(sends(TWO, clock=clock).send(outbound()))
    assert [ask.timeout_s for ask in script.asks] == [3.0, 1.0]


def test_no_attempt_is_made_when_the_time_is_over() -> None:
    clock = Clock()

    def too_late(ask: Ask) -> Reply:
        clock.now_s += 3.0
        return reply(code=ResponseCode.SYSTEM_ERROR)

    with pytest.raises(SendFailedError, match="1 attempt,"):
        Script(too_late).run(sends(TWO, clock=clock).send(outbound()))


def test_time_that_went_by_while_nameservers_were_asked_counts() -> None:
    clock = Clock()

    def too_late(ask: Ask) -> Reply:
        clock.now_s += 1.5
        return route_of(ONE)

    with pytest.raises(RequestTimeoutError, match="where topic T is to n:1"):
        Script(too_late).run(sends(clock=clock).send(outbound(), timeout_s=1.0))


# --- nobody there ----------------------------------------------------------------------------


def test_nobody_to_send_to_is_said_as_such() -> None:
    with pytest.raises(NoNameserverError):
        Script(REFUSED).run(sends().send(outbound()))
    with pytest.raises(NoRouteError, match="no broker has it"):
        Script(NO_TOPIC, NO_TOPIC).run(sends().send(outbound()))
    with pytest.raises(NoRouteError, match="none of its queues takes messages now"):
        Script(route_of(ONE, perm=4)).run(sends().send(outbound()))


def test_what_is_closed_is_not_retried() -> None:
    assert not is_retried(ClientClosedError("producer g"))
    assert is_retried(BadAnswerError("a:1", "SEND", "nonsense"))


def test_a_large_batch_says_which_part_failed() -> None:
    runs = [[Message("T", b"1")], [Message("T", b"2"), Message("T", b"3")], [Message("T", b"4")]]
    result = Script(stored()).run(sends(ONE).send(outbound()))
    failed = SendFailedError("T", [("a", LOST)], may_be_stored=True)
    error = BatchFailedError(runs, [result, failed, NoRouteError("n:1", "T", "gone")])
    assert error.results == [result]
    assert [message.body for message in error.unacknowledged] == [b"2", b"3", b"4"]
    assert error.may_be_stored
    assert isinstance(error, SendFailedError)


@pytest.mark.parametrize(
    "settings",
    [
        {"send_timeout_s": 0},
        {"retries": -1},
        {"compress_level": 10},
        {"compress_above": 0},
        {"pending_max": 0},
        {"default_queues": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        ProducerConfig(group="g", **settings)  # type: ignore[arg-type]
    with pytest.raises(IllegalMessageError):
        ProducerConfig(group="no good")
