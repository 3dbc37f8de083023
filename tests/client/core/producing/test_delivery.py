"""The state machine of one send, stepped without a network: each rule, and what holds always."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.messages import SendResult, SendStatus
from rmq.client.core.producing.config import ProducerConfig
from rmq.client.core.producing.delivery import (
    REFRESH_INTERVAL_S,
    AwaitMaster,
    AwaitRoute,
    Delivery,
    Done,
    FindRoute,
    SendPolicy,
    Transmit,
    nothing_writable,
)
from rmq.client.core.producing.master_waits import NotMasterError
from rmq.client.core.producing.targets import TOPICS_MAX, QueueTarget, TargetTable
from rmq.client.core.routes import TopicRoute
from rmq.errors import (
    BadAnswerError,
    ClientClosedError,
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    NoNameserverError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
    SendFailedError,
)
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import BrokerData, QueueData, TopicRouteData
from rmq.remoting.codes import ResponseCode
from tests.client.flow_kit import routes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.client.core.producing.delivery import Step

    Brokers = Mapping[str, Mapping[int, str]]

TIMEOUT_S: Final = 3.0
TWO: Final[Brokers] = {"a": {0: "a:1"}, "b": {0: "b:1"}}
ONE: Final[Brokers] = {"a": {0: "a:1"}}
PAIR: Final[Brokers] = {"a": {0: "a:1", 1: "a:2"}}
LONE_SLAVE: Final[Brokers] = {"a": {1: "a:2"}}
QUEUE: Final = MessageQueue(topic="T", broker_name="a", queue_id=1)

LOST: Final = ConnectionLostError("a:1", "reset")
REFUSED: Final = ConnectFailedError("a:1", "refused")
SILENT: Final = RequestTimeoutError("a:1", "SEND", 1.0)
BROKEN: Final = ResponseError("a:1", "SEND", ResponseCode.SYSTEM_ERROR, "broken")
ILLEGAL: Final = ResponseError("a:1", "SEND", ResponseCode.MESSAGE_ILLEGAL, "no")
NO_MASTER: Final = ResponseError("a:1", "SEND", ResponseCode.SERVICE_NOT_AVAILABLE, "a slave")


def named(address: str) -> NotMasterError:
    """A refusal of a former master that names the new one."""
    return NotMasterError("a:1", "SEND", ResponseCode.SERVICE_NOT_AVAILABLE, None, address)


def route_of(brokers: Brokers, *, perm: int = 6) -> TopicRoute:
    return TopicRoute(
        "T",
        TopicRouteData(
            queue_datas=tuple(
                QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=perm)
                for name in brokers
            ),
            broker_datas=tuple(
                BrokerData(cluster="c", broker_name=name, broker_addrs=dict(addresses))
                for name, addresses in brokers.items()
            ),
        ),
    )


class Producer:
    """The sends of one producer, with a clock and a table of routes that a test changes."""

    def __init__(self, brokers: Brokers | None, **settings: object) -> None:
        self.now = 100.0
        self.routes = routes_of("T", {name: dict(at) for name, at in (brokers or {}).items()})
        if brokers is None:
            self.routes.forget("T")
        self.table = TargetTable(self.routes, lambda: -1)
        self.refreshes: list[str] = []
        self.policy: SendPolicy[QueueTarget] = SendPolicy(
            ProducerConfig(group="g", **settings),  # type: ignore[arg-type]
            routes=self.routes,
            nameservers=("n:1", "n:2"),
            targets_of=self.table.get,
            on_stale=self.refreshes.append,
        )

    def begin(self, queue: MessageQueue | None = None) -> Send:
        return Send(self, queue)

    def told(self, brokers: Brokers, *, perm: int = 6) -> None:
        """Nameservers tell a route."""
        self.routes.put(route_of(brokers, perm=perm))

    def end_wait(self) -> None:
        """The route was asked for in a wait for a master."""
        route = self.policy.waits.end("T", self.routes.get("T"))
        assert route is not None
        self.table.use(route)


class Send:
    """One send, whose time goes by with the producer's clock."""

    def __init__(self, producer: Producer, queue: MessageQueue | None) -> None:
        self.producer = producer
        self.machine: Delivery[QueueTarget] = Delivery(producer.policy, "T", queue, TIMEOUT_S)
        self.deadline = producer.now + TIMEOUT_S
        self.target = QueueTarget(QUEUE, "a", "a:1")
        """Where the last attempt went."""

    @property
    def left_s(self) -> float:
        return self.deadline - self.producer.now

    def next(self) -> Step[QueueTarget]:
        return self.machine.next(self.producer.now, self.left_s)

    def address(self) -> str:
        """Return where the next step sends to."""
        step = self.next()
        assert isinstance(step, Transmit), step
        self.target = step.target
        return step.target.address

    def fail(self, error: ClientError, took_s: float = 0.0) -> None:
        self.producer.now += took_s
        self.machine.failed(
            self.target, error, took_s=took_s, now=self.producer.now, left_s=self.left_s
        )

    def outcome(self) -> object:
        step = self.next()
        assert isinstance(step, Done), step
        return step.outcome

    def error(self) -> SendFailedError:
        outcome = self.outcome()
        assert isinstance(outcome, SendFailedError), outcome
        return outcome


def result(status: SendStatus = SendStatus.OK) -> SendResult:
    return SendResult(
        status=status, message_id="m", offset_message_id="o", queue=QUEUE, queue_offset=3
    )


# --- the first step --------------------------------------------------------------------------


def test_the_first_step_of_a_known_topic_is_an_attempt_with_all_the_time() -> None:
    step = Producer(TWO).begin().next()
    queue = MessageQueue(topic="T", broker_name="a", queue_id=0)
    assert step == Transmit(QueueTarget(queue, "a", "a:1"), TIMEOUT_S)


@pytest.mark.parametrize("queue", [None, QUEUE], ids=["in turn", "chosen"])
@pytest.mark.parametrize("avoids", [False, True])
def test_the_short_cut_of_drivers_chooses_what_the_machine_chooses(
    queue: MessageQueue | None, *, avoids: bool
) -> None:
    by_machine, by_hand = (Producer(TWO, avoids_slow_brokers=avoids) for _ in range(2))
    for producer in (by_machine, by_hand):
        producer.policy.faults.note("b", 9.0, producer.now, failed=True)
    for _ in range(9):
        step = by_machine.begin(queue).next()
        topic = by_hand.table.get("T")
        assert topic is not None
        chosen = by_hand.policy.choose(topic, queue, None, by_hand.now)
        assert step == Transmit(chosen, TIMEOUT_S)


def test_a_topic_that_is_not_known_is_found_first() -> None:
    producer = Producer(None)
    send = producer.begin()
    assert send.next() == FindRoute()
    producer.told(ONE)
    assert send.address() == "a:1"


@pytest.mark.parametrize(
    "error",
    [NoNameserverError("T", {"n:1": "refused"}), NoRouteError("n:1", "T", "no broker has it")],
)
def test_a_topic_that_is_not_found_ends_the_send(error: ClientError) -> None:
    send = Producer(None).begin()
    assert send.next() == FindRoute()
    send.machine.no_route(error)
    assert send.outcome() is error


def test_time_that_is_over_before_a_route_was_found_is_told() -> None:
    producer = Producer(None)
    send = producer.begin()
    send.next()
    producer.told(ONE)
    producer.now += TIMEOUT_S
    error = send.outcome()
    assert isinstance(error, RequestTimeoutError)
    assert "asking where topic T is to n:1;n:2" in str(error)


# --- retries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [LOST, REFUSED, SILENT, BROKEN, BadAnswerError("a:1", "S", "?")])
def test_a_failure_is_retried_on_another_broker_as_often_as_configured(error: ClientError) -> None:
    for retries in range(4):
        send = Producer(TWO, retries=retries).begin()
        addresses = []
        for _ in range(1 + retries):
            addresses.append(send.address())
            send.fail(error)
        assert addresses == ["a:1", "b:1", "a:1", "b:1"][: 1 + retries]
        assert list(send.error().attempts) == [(address[0], error) for address in addresses]


def test_a_refusal_that_holds_everywhere_is_not_retried() -> None:
    for error in (ILLEGAL, ClientClosedError("producer g")):
        send = Producer(TWO).begin()
        send.address()
        send.fail(error)
        assert list(send.error().attempts) == [("a", error)]


def test_a_chosen_queue_has_one_attempt() -> None:
    send = Producer(TWO).begin(QUEUE)
    assert send.address() == "a:1"
    assert send.target.queue == QUEUE
    send.fail(BROKEN)
    assert len(send.error().attempts) == 1


@pytest.mark.parametrize(
    ("error", "may_be_stored"),
    [(LOST, True), (SILENT, True), (BadAnswerError("a:1", "S", "?"), True), (BROKEN, False)],
)
def test_without_an_answer_a_message_may_be_stored(
    error: ClientError, *, may_be_stored: bool
) -> None:
    send = Producer(TWO, retries=0).begin()
    send.address()
    send.fail(error)
    assert send.error().may_be_stored is may_be_stored


def test_attempts_share_the_time_and_none_begins_after_it() -> None:
    send = Producer(TWO, retries=9).begin()
    for left_s in (3.0, 2.0, 1.0):
        step = send.next()
        assert isinstance(step, Transmit)
        assert step.timeout_s == pytest.approx(left_s)
        send.target = step.target
        send.fail(BROKEN, took_s=1.0)
    assert len(send.error().attempts) == 3


def test_a_queue_whose_broker_has_no_master_is_a_failed_attempt() -> None:
    producer = Producer(ONE)
    send = producer.begin(MessageQueue(topic="T", broker_name="gone", queue_id=0))
    ((name, error),) = send.error().attempts
    assert name == "gone"
    assert isinstance(error, NoRouteError)
    assert producer.refreshes == ["T"]


def test_a_topic_that_takes_no_messages_any_longer_is_tried_where_it_was() -> None:
    producer = Producer(ONE)
    send = producer.begin()
    send.address()
    send.fail(LOST)
    assert send.next() == AwaitRoute()
    producer.told(ONE, perm=4)
    assert send.address() == "a:1"
    assert producer.begin().next() == FindRoute(), "the next send has to find it"


def test_that_holds_also_if_the_first_attempt_was_made_without_the_machine() -> None:
    producer = Producer(ONE)
    topic = producer.table.get("T")
    assert topic is not None
    send = producer.begin()
    send.target = producer.policy.choose(topic, None, None, producer.now)
    producer.told(ONE, perm=4)
    send.fail(BROKEN)
    assert send.address() == "a:1"


def test_closing_ends_a_send_and_tells_whether_it_was_on_its_way() -> None:
    for is_sent in (False, True):
        send = Producer(TWO).begin()
        send.address()
        closed = ClientClosedError("producer g")
        send.machine.closed(send.target, closed, is_sent=is_sent)
        error = send.error()
        assert (list(error.attempts), error.may_be_stored) == ([("a", closed)], is_sent)


# --- routes that may have changed ------------------------------------------------------------


def test_with_another_broker_the_route_is_asked_for_in_the_background() -> None:
    producer = Producer(TWO)
    send = producer.begin()
    send.address()
    send.fail(LOST)
    assert producer.refreshes == ["T"]
    assert send.address() == "b:1"


def test_without_another_broker_a_send_waits_for_the_route() -> None:
    producer = Producer(ONE)
    send = producer.begin()
    send.address()
    send.fail(LOST)
    assert send.next() == AwaitRoute()
    assert producer.refreshes == [], "the driver asks for it, for the send waits"
    producer.told({"a": {0: "a:9"}})
    assert send.address() == "a:9"


def test_a_refusal_that_says_nothing_of_the_route_does_not_ask_for_it() -> None:
    producer = Producer(ONE)
    send = producer.begin()
    send.address()
    send.fail(BROKEN)
    assert send.address() == "a:1"
    assert producer.refreshes == []


def test_the_last_failure_asks_for_the_route_for_those_who_come_next() -> None:
    producer = Producer(ONE, retries=0)
    send = producer.begin()
    send.address()
    send.fail(LOST)
    assert producer.refreshes == ["T"]
    send.error()


def test_a_route_is_asked_for_once_in_a_second_however_many_sends_fail() -> None:
    producer = Producer(TWO, retries=0)
    asked = []
    for _ in range(25):
        send = producer.begin()
        send.address()
        send.fail(LOST, took_s=0.1)
        asked.append(len(producer.refreshes))
    assert asked[-1] == 3
    # A send with nowhere else to go tries again at once then, and joins one that is under way.
    lone = Producer(ONE)
    first, second, third = lone.begin(), lone.begin(), lone.begin()
    for send in (first, second, third):
        send.address()
    first.fail(LOST)
    assert first.next() == AwaitRoute()
    second.fail(LOST)
    assert second.address() == "a:1"
    lone.policy.refreshing.add("T")
    third.fail(LOST)
    assert third.next() == AwaitRoute()


def test_the_topics_of_which_that_is_kept_are_bounded() -> None:
    policy = Producer(ONE).policy
    for number in range(TOPICS_MAX + 1):
        assert policy.begin_refresh(f"T{number}", 1.0)
    assert policy.begin_refresh("T0", 1.0), "the oldest is forgotten"
    assert not policy.begin_refresh(f"T{TOPICS_MAX}", 1.0)
    assert policy.begin_refresh(f"T{TOPICS_MAX}", 1.0 + REFRESH_INTERVAL_S)


# --- waiting for a master --------------------------------------------------------------------


def test_a_broker_that_is_no_master_costs_no_try_and_others_are_tried_first() -> None:
    producer = Producer(TWO, retries=0)
    send = producer.begin()
    for address in ("a:1", "b:1"):
        assert send.address() == address
        send.fail(NO_MASTER)
    assert send.next() == AwaitMaster(0.0)
    producer.end_wait()
    send.address()
    send.fail(BROKEN)
    assert len(send.error().attempts) == 3


def test_pauses_grow_and_end_with_the_send() -> None:
    producer = Producer(ONE, retries=0)
    send = producer.begin()
    pauses = []
    while isinstance(step := send.next(), Transmit):
        send.target = step.target
        send.fail(NO_MASTER)
        if isinstance(step := send.next(), Done):
            break
        assert isinstance(step, AwaitMaster)
        pauses.append(step.pause_s)
        producer.now += step.pause_s
        producer.end_wait()
    assert pauses[:7] == [0.0, 0.05, 0.1, 0.2, 0.4, 0.5, 0.5]
    assert sum(pauses) == pytest.approx(TIMEOUT_S)
    assert len(send.error().attempts) == 1, "the same broker is told of once"
    assert producer.refreshes == [], "the route is asked for after each pause anyway"


def test_sends_of_a_topic_share_one_wait() -> None:
    producer = Producer(ONE)
    sends = [producer.begin() for _ in range(3)]
    for send in sends:
        send.address()
        send.fail(NO_MASTER)
    assert [send.next() for send in sends] == [AwaitMaster(0.0)] * 3
    producer.end_wait()
    for send in sends:
        send.address()
        send.fail(NO_MASTER)
    assert sends[0].next() == AwaitMaster(0.05)
    producer.now += 0.03
    step = sends[1].next()
    assert isinstance(step, AwaitMaster)
    assert step.pause_s == pytest.approx(0.02)


def test_a_name_with_slaves_only_is_waited_for() -> None:
    producer = Producer(None)
    send = producer.begin()
    assert send.next() == FindRoute()
    producer.told(LONE_SLAVE)
    error = nothing_writable("n:1", "T", producer.routes.get("T"))
    send.machine.no_route(error)
    for pause_s in (0.0, 0.05):
        assert send.next() == AwaitMaster(pause_s)
        producer.now += pause_s
        producer.end_wait()
    producer.told({"a": {0: "a:2"}})
    assert send.address() == "a:2"
    # And if there is none in time, that is what is told.
    late = producer.begin()
    late.machine.no_route(error)
    producer.now += TIMEOUT_S
    assert late.outcome() is error


def test_a_master_that_cannot_be_reached_is_waited_for_if_it_has_a_slave() -> None:
    for brokers, waits in ((PAIR, True), (ONE, False)):
        send = Producer(brokers).begin()
        send.address()
        send.fail(REFUSED)
        assert isinstance(send.next(), AwaitMaster if waits else AwaitRoute)


def test_a_chosen_queue_waits_for_its_master_whoever_else_has_one() -> None:
    producer = Producer(TWO)
    send = producer.begin(QUEUE)
    send.address()
    send.fail(NO_MASTER)
    assert send.next() == AwaitMaster(0.0)
    producer.told({"a": {0: "a:2"}, "b": {0: "b:1"}})
    producer.end_wait()
    assert send.address() == "a:2"


def test_a_named_master_is_tried_once_if_nameservers_list_it_as_a_slave() -> None:
    producer = Producer(PAIR)
    send = producer.begin()
    send.address()
    send.fail(named("a:2"))
    send.next()
    producer.end_wait()
    assert send.address() == "a:2"
    send.fail(NO_MASTER)
    send.next()
    producer.end_wait()
    assert send.address() == "a:1", "the one that is listed counts again"
    send.fail(named("evil:1"))
    send.next()
    producer.end_wait()
    assert send.address() == "a:1"


def test_masters_that_several_brokers_named_are_all_tried() -> None:
    producer = Producer({"a": {0: "a:1", 1: "a:2"}, "b": {0: "b:1", 1: "b:2"}})
    send = producer.begin()
    assert send.address() == "a:1"
    send.fail(named("a:2"))
    assert send.address() == "b:1"
    error = NotMasterError("b:1", "SEND", ResponseCode.SERVICE_NOT_AVAILABLE, None, "b:2")
    send.fail(error)
    assert isinstance(send.next(), AwaitMaster)
    producer.end_wait()
    assert send.address() == "a:2"
    send.fail(NO_MASTER)
    assert send.address() == "b:2"


# --- answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("status", SendStatus)
def test_every_answer_ends_a_send_unless_it_is_configured_otherwise(status: SendStatus) -> None:
    for settings in ({}, {"avoids_slow_brokers": True}):
        policy = Producer(TWO, **settings).policy
        assert policy.accepts("a", result(status), took_s=0.1, now=1.0)
        assert policy.accepts_every_answer is (not settings)
    strict = Producer(TWO, retries_when_not_ok=True).policy
    assert not strict.accepts_every_answer
    is_accepted = strict.accepts("a", result(status), took_s=0.1, now=1.0)
    assert is_accepted is (status is SendStatus.OK)


def test_a_message_that_is_stored_but_not_replicated_is_sent_again_and_kept() -> None:
    producer = Producer(TWO, retries_when_not_ok=True)
    kept = result(SendStatus.FLUSH_SLAVE_TIMEOUT)
    send = producer.begin()
    assert send.address() == "a:1"
    send.machine.not_ok(send.target, kept)
    assert send.address() == "b:1"
    send.fail(ILLEGAL)
    assert send.outcome() is kept
    # A chosen queue has one attempt, also then; and so has a send without time.
    for send, left_s in ((producer.begin(QUEUE), TIMEOUT_S), (producer.begin(), 0.0)):
        send.address()
        send.machine.not_ok(send.target, kept)
        assert send.machine.next(producer.now, left_s) == Done(kept)


# --- brokers to avoid ------------------------------------------------------------------------


def test_failures_and_slow_answers_are_noted_only_on_demand() -> None:
    for avoids in (False, True):
        producer = Producer(TWO, avoids_slow_brokers=avoids)
        faults = producer.policy.faults
        send = producer.begin()
        send.address()
        send.fail(LOST)
        assert faults.is_available("a", producer.now) is not avoids
        producer.policy.accepts("b", result(), took_s=5.0, now=producer.now)
        assert faults.is_available("b", producer.now) is not avoids


def test_a_broker_that_is_no_master_is_avoided_for_a_moment_only() -> None:
    producer = Producer(TWO, avoids_slow_brokers=True)
    send = producer.begin()
    send.address()
    send.fail(NO_MASTER)
    faults = producer.policy.faults
    assert not faults.is_available("a", producer.now)
    assert faults.is_available("a", producer.now + 0.6)


# --- always ----------------------------------------------------------------------------------

ROUTES: Final = st.sampled_from([ONE, TWO, PAIR, LONE_SLAVE])
ERRORS: Final = st.sampled_from([LOST, REFUSED, SILENT, BROKEN, ILLEGAL, NO_MASTER, named("a:2")])


@given(
    brokers=st.none() | ROUTES,
    queue=st.sampled_from([None, QUEUE]),
    retries=st.integers(0, 3),
    avoids=st.booleans(),
    is_strict=st.booleans(),
    data=st.data(),
)
def test_every_send_ends_in_time_and_with_bounded_tries(
    brokers: Brokers | None,
    queue: MessageQueue | None,
    retries: int,
    data: st.DataObject,
    *,
    avoids: bool,
    is_strict: bool,
) -> None:
    producer = Producer(
        brokers, retries=retries, avoids_slow_brokers=avoids, retries_when_not_ok=is_strict
    )
    send = producer.begin(queue)
    tries_max = 1 + (retries if queue is None else 0)
    tries = 0
    for _ in range(200):
        step = send.next()
        if isinstance(step, Done):
            break
        assert send.left_s > 0, "nothing begins after the deadline"
        if isinstance(step, Transmit):
            assert step.target.address
            assert 0 < step.timeout_s <= send.left_s
            assert queue is None or step.target.queue == queue
            send.target = step.target
            if is_strict and data.draw(st.booleans()):
                tries += 1
                send.machine.not_ok(step.target, result(SendStatus.FLUSH_DISK_TIMEOUT))
            else:
                error = data.draw(ERRORS)
                route = producer.routes.get("T")
                assert route is not None
                costs_none = isinstance(error, ResponseError) and error.code == 14
                if not costs_none and not (error is REFUSED and route.has_slave(step.target[1])):
                    tries += 1
                send.fail(error, took_s=data.draw(st.sampled_from([0.0, 0.01, 1.0, 5.0])))
            assert tries <= tries_max
        elif isinstance(step, AwaitMaster):
            assert 0 <= step.pause_s <= send.left_s
            producer.now += step.pause_s
            if data.draw(st.booleans()):
                producer.told(data.draw(ROUTES))
            producer.end_wait()
        else:
            producer.now += data.draw(st.sampled_from([0.0, 0.1]))
            if isinstance(step, FindRoute) and data.draw(st.booleans()):
                send.machine.no_route(NoNameserverError("T", {"n:1": "refused"}))
            else:
                producer.told(data.draw(ROUTES))
                route = producer.routes.get("T")
                assert route is not None
                if isinstance(step, FindRoute) and not route.writable:
                    send.machine.no_route(nothing_writable("n:1", "T", route))
    else:
        pytest.fail("it did not end")
    assert isinstance(send.next(), Done), "and it stays so"
