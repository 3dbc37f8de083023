"""Who consumes which queues: vectors from the stock classes, and what must hold for any group.

The vectors were made with the strategy classes of the Java client 4.9.8.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.consuming.allocation import (
    Average,
    AverageByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    Strategy,
    queue_text,
    ring_hash,
    sorted_client_ids,
    sorted_queues,
)
from rmq.errors import ConfigError
from rmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Sequence


def queues_of(*brokers: str, count: int = 4) -> list[MessageQueue]:
    return [
        MessageQueue(topic="Orders", broker_name=broker, queue_id=number)
        for broker in brokers
        for number in range(count)
    ]


def room_before_dash(name: str) -> str:
    return name.split("-")[0]


ORDERS: Final = queues_of("broker-b", "broker-a")
CLIENTS: Final = ("10.0.0.2@77#1", "10.0.0.10@5#3", "10.0.0.1@9#2")
ROOMS: Final = queues_of("r1@a", "r2@b", "r3@c", "plain", "r1@x@y", "r2@b@", count=3)
NEAR: Final = queues_of("R1-a", "R2-b", "R3-c", "R4-d", count=3)


@pytest.mark.parametrize(
    ("strategy", "queues", "shares"),
    [
        pytest.param(
            Average(),
            ORDERS,
            {
                "10.0.0.10@5#3": "broker-a:0,broker-a:1,broker-a:2",
                "10.0.0.1@9#2": "broker-a:3,broker-b:0,broker-b:1",
                "10.0.0.2@77#1": "broker-b:2,broker-b:3",
            },
            id="AVG",
        ),
        pytest.param(
            Average(),
            ORDERS,
            {
                **{f"c{number}": f"broker-a:{number}" for number in range(4)},
                **{f"c{number}": f"broker-b:{number - 4}" for number in range(4, 8)},
                "c8": "",
                "c9": "",
            },
            id="AVG, more clients than queues",
        ),
        pytest.param(
            Average(),
            ORDERS,
            {
                "z": "broker-a:0,broker-a:1,broker-a:2",
                "\U0001f600": "broker-a:3,broker-b:0,broker-b:1",
                "\uff5e": "broker-b:2,broker-b:3",
            },
            id="AVG, ids in the order of UTF-16",
        ),
        pytest.param(
            AverageByCircle(),
            ORDERS,
            {
                "10.0.0.10@5#3": "broker-a:0,broker-a:3,broker-b:2",
                "10.0.0.1@9#2": "broker-a:1,broker-b:0,broker-b:3",
                "10.0.0.2@77#1": "broker-a:2,broker-b:1",
            },
            id="AVG_BY_CIRCLE",
        ),
        pytest.param(
            ConsistentHash(),
            ORDERS,
            {
                "10.0.0.10@5#3": "broker-a:1",
                "10.0.0.1@9#2": "broker-a:0,broker-a:3,broker-b:1,broker-b:2,broker-b:3",
                "10.0.0.2@77#1": "broker-a:2,broker-b:0",
            },
            id="CONSISTENT_HASH",
        ),
        pytest.param(
            ConsistentHash(1),
            ORDERS,
            {
                "10.0.0.10@5#3": "",
                "10.0.0.1@9#2": "broker-a:3,broker-b:1,broker-b:2,broker-b:3",
                "10.0.0.2@77#1": "broker-a:0,broker-a:1,broker-a:2,broker-b:0",
            },
            id="CONSISTENT_HASH, one node each",
        ),
        pytest.param(
            ByMachineRoom(frozenset({"r1", "r2"})),
            ROOMS,
            {
                "a": "r1@a:0,r1@a:1,r1@a:2,r2@b:0,r2@b@:2",
                "b": "r2@b:1,r2@b:2,r2@b@:0,r2@b@:1",
            },
            id="MACHINE_ROOM, two clients",
        ),
        pytest.param(
            ByMachineRoom(frozenset({"r1", "r2"})),
            ROOMS,
            {
                "a": "r1@a:0,r1@a:1,r2@b@:2",
                "b": "r1@a:2,r2@b:0",
                "c": "r2@b:1,r2@b:2",
                "d": "r2@b@:0,r2@b@:1",
            },
            id="MACHINE_ROOM, four clients",
        ),
        pytest.param(
            MachineRoomNearby(Average(), room_before_dash, room_before_dash),
            NEAR,
            {
                "R1-x": "R1-a:0,R1-a:1,R3-c:0,R4-d:0",
                "R1-y": "R1-a:2,R3-c:1,R4-d:1",
                "R2-z": "R2-b:0,R2-b:1,R2-b:2,R3-c:2,R4-d:2",
            },
            id="MACHINE_ROOM_NEARBY-AVG",
        ),
        pytest.param(
            MachineRoomNearby(ConsistentHash(), room_before_dash, room_before_dash),
            NEAR,
            {
                "R1-x": "R1-a:2,R3-c:2,R4-d:0",
                "R1-y": "R1-a:0,R1-a:1,R3-c:0,R4-d:1",
                "R2-z": "R2-b:0,R2-b:1,R2-b:2,R3-c:1,R4-d:2",
            },
            id="MACHINE_ROOM_NEARBY-CONSISTENT_HASH",
        ),
    ],
)
def test_shares_are_those_of_stock_clients(
    strategy: Strategy, queues: Sequence[MessageQueue], shares: dict[str, str]
) -> None:
    for client_id, share in shares.items():
        # In whatever order queues and ids come.
        for order in (1, -1):
            found = strategy("g", client_id, queues[::order], list(shares)[::order])
            assert as_text(found) == share


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [
        (
            Average(),
            {"a": "broker-a:0,broker-a:1,broker-a:2", "b": "broker-b:2,broker-b:3"},
        ),
        (
            AverageByCircle(),
            {"a": "broker-a:0,broker-a:3,broker-b:2", "b": "broker-a:2,broker-b:1"},
        ),
        (
            ConsistentHash(),
            {
                "a": "broker-a:0,broker-a:2,broker-b:0,broker-b:1,broker-b:3",
                "b": "broker-a:1,broker-a:3,broker-b:2",
            },
        ),
    ],
    ids=["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"],
)
def test_an_id_that_two_processes_share_counts_twice_as_with_stock_clients(
    strategy: Strategy, shares: dict[str, str]
) -> None:
    for client_id, share in shares.items():
        assert as_text(strategy("g", client_id, ORDERS, ["a", "b", "a"])) == share


def as_text(queues: Sequence[MessageQueue]) -> str:
    return ",".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues)


# --- what must hold for any group ------------------------------------------------------------

EVENLY: Final = (Average(), AverageByCircle())
STRATEGIES: Final = (*EVENLY, ConsistentHash(), ConsistentHash(1))

drawn_queues = st.lists(
    st.builds(
        MessageQueue,
        topic=st.just("T"),
        broker_name=st.sampled_from(["a", "b", "R1-a", "ä"]),
        queue_id=st.integers(0, 30),
    ),
    unique=True,
    max_size=40,
)
drawn_ids = st.lists(st.text(max_size=8), unique=True, min_size=1, max_size=12)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: repr(strategy))
@given(queues=drawn_queues, ids=drawn_ids)
def test_every_queue_goes_to_exactly_one_client(
    strategy: Strategy, queues: list[MessageQueue], ids: list[str]
) -> None:
    shares = [strategy("g", client_id, queues, ids) for client_id in ids]
    dealt = [queue for share in shares for queue in share]
    assert len(dealt) == len(queues)
    assert set(dealt) == set(queues)
    if strategy in EVENLY:
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1


@given(queues=drawn_queues, ids=drawn_ids, newcomer=st.text(min_size=9, max_size=9))
def test_a_newcomer_only_takes_from_others_on_the_ring(
    queues: list[MessageQueue], ids: list[str], newcomer: str
) -> None:
    strategy = ConsistentHash()
    for client_id in ids:
        before = set(strategy("g", client_id, queues, ids))
        assert set(strategy("g", client_id, queues, [*ids, newcomer])) <= before


@given(queues=drawn_queues, ids=drawn_ids)
def test_rooms_nearby_deal_out_everything_once(queues: list[MessageQueue], ids: list[str]) -> None:
    strategy = MachineRoomNearby(Average(), lambda name: name[:1], lambda name: name[:1] or "none")
    dealt = [queue for client_id in ids for queue in strategy("g", client_id, queues, ids)]
    assert sorted_queues(dealt) == sorted_queues(queues)
    assert len(dealt) == len(queues)


# --- the rest --------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [*STRATEGIES, ByMachineRoom(frozenset({"r"}))], ids=repr)
def test_a_client_that_is_not_in_the_group_has_no_share(strategy: Strategy) -> None:
    assert strategy("g", "x", ORDERS, CLIENTS) == []
    assert strategy("g", "x", ORDERS, []) == []
    assert strategy("g", CLIENTS[0], [], CLIENTS) == []


def test_a_fixed_list_is_what_it_is() -> None:
    strategy = ByConfig((ORDERS[3], ORDERS[1]))
    assert strategy("g", "x", [], []) == [ORDERS[3], ORDERS[1]]


def test_rooms_must_be_known() -> None:
    with pytest.raises(ConfigError, match="no machine room"):
        ByMachineRoom(frozenset())
    strategy = MachineRoomNearby(Average(), lambda name: "", room_before_dash)
    with pytest.raises(ConfigError, match="R1-a is in no machine room"):
        strategy("g", "R1-x", NEAR, ["R1-x"])
    assert strategy("g", "R1-y", NEAR, ["R1-x"]) == []
    with pytest.raises(ConfigError, match="0 is below 1"):
        ConsistentHash(0)


def test_names_are_those_of_stock_clients() -> None:
    assert Average().name == "AVG"
    assert AverageByCircle().name == "AVG_BY_CIRCLE"
    assert ByConfig(()).name == "CONFIG"
    assert ByMachineRoom(frozenset({"r"})).name == "MACHINE_ROOM"
    assert ConsistentHash().name == "CONSISTENT_HASH"
    nearby = MachineRoomNearby(Average(), room_before_dash, room_before_dash)
    assert nearby.name == "MACHINE_ROOM_NEARBY-AVG"


@pytest.mark.parametrize(
    "strategy",
    [
        *STRATEGIES,
        ByConfig(tuple(ORDERS)),
        ByMachineRoom(frozenset({"r"})),
        MachineRoomNearby(Average(), room_before_dash, room_before_dash),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_strategies_are_values(strategy: Strategy) -> None:
    again = pickle.loads(pickle.dumps(strategy))
    assert again == strategy
    assert hash(again) == hash(strategy)
    assert isinstance(strategy, Strategy)


def test_places_on_the_ring() -> None:
    # The first 4 bytes of MD5("") are d41d8cd9.
    assert ring_hash("") == 0xD41D8CD9
    queue = MessageQueue(topic="T", broker_name="b", queue_id=7)
    assert queue_text(queue) == "MessageQueue [topic=T, brokerName=b, queueId=7]"


def test_orders_are_those_of_java() -> None:
    assert sorted_client_ids(["\uff5e", "\U0001f600", "z", "Z"]) == [
        "Z",
        "z",
        "\U0001f600",
        "\uff5e",
    ]
    mixed = [
        MessageQueue(topic="b", broker_name="a", queue_id=0),
        MessageQueue(topic="a", broker_name="b", queue_id=10),
        MessageQueue(topic="a", broker_name="b", queue_id=9),
        MessageQueue(topic="a", broker_name="a", queue_id=11),
    ]
    assert sorted_queues([*mixed, mixed[0]]) == [mixed[3], mixed[2], mixed[1], mixed[0]]
