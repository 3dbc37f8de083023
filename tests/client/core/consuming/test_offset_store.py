"""How far a consumer has come: in memory, at brokers and in a file that Java reads too."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.consuming.offset_file import LocalOffsetFile, local_offset_path
from rmq.client.core.consuming.offset_store import LocalOffsetStore, OffsetTable, RemoteOffsetStore
from rmq.client.core.consuming.offsets import fetch_offset
from rmq.client.core.flows import Pause
from rmq.client.trio.opening import open_client
from rmq.errors import (
    ConfigError,
    ConnectionLostError,
    CorruptStoreError,
    NoRouteError,
    ResponseError,
    StorageError,
)
from rmq.model.queues import MessageQueue
from rmq.remoting.codes import ResponseCode
from rmq.remoting.headers import QueryConsumerOffsetResponse, UpdateConsumerOffsetRequest
from tests.client.cluster_kit import cluster
from tests.client.flow_kit import Script, reply, routes_of

if TYPE_CHECKING:
    from pathlib import Path

ROUTES: Final = routes_of("T", {"broker-a": {0: "m:1"}, "broker-b": {1: "s:1"}})
A0: Final = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
A1: Final = MessageQueue(topic="T", broker_name="broker-a", queue_id=1)
B0: Final = MessageQueue(topic="T", broker_name="broker-b", queue_id=0)
OTHER: Final = MessageQueue(topic="U", broker_name="broker-a", queue_id=0)
GONE: Final = MessageQueue(topic="T", broker_name="broker-c", queue_id=0)


def told(script: Script) -> dict[tuple[str, int], int]:
    """Return what brokers were told, by address and queue."""
    found = {}
    for step in script.steps:
        assert not isinstance(step, Pause)
        assert isinstance(step.header, UpdateConsumerOffsetRequest)
        found[step.address, step.header.queue_id] = step.header.commit_offset
    return found


# --- memory ----------------------------------------------------------------------------------


def test_an_offset_goes_back_only_if_that_is_asked_for() -> None:
    table = OffsetTable()
    assert table.get(A0) is None
    table.update(A0, 0)
    assert table.get(A0) == 0
    table.update(A0, 7)
    table.update(A0, 5)
    assert table.get(A0) == 7
    table.reset(A0, 5)
    assert table.get(A0) == 5
    table.forget(A0)
    table.forget(A0)
    assert table.get(A0) is None


def test_offsets_are_told_by_topic() -> None:
    table = OffsetTable()
    table.update(A0, 1)
    table.update(OTHER, 2)
    assert table.offsets() == {A0: 1, OTHER: 2}
    assert table.offsets("T") == {A0: 1}
    assert table.offsets("V") == {}


# --- brokers ---------------------------------------------------------------------------------


def test_loading_goes_by_what_the_broker_says_be_it_less() -> None:
    store = RemoteOffsetStore(ROUTES, "g")
    store.update(A0, 9)
    script = Script(reply(QueryConsumerOffsetResponse(offset=4)))
    assert script.run(store.load(A0)) == 4
    assert store.get(A0) == 4


def test_loading_nothing_leaves_nothing() -> None:
    store = RemoteOffsetStore(ROUTES, "g")
    assert Script(reply(code=ResponseCode.QUERY_NOT_FOUND)).run(store.load(A0)) is None
    assert store.get(A0) is None
    with pytest.raises(ResponseError):
        Script(reply(code=ResponseCode.SYSTEM_ERROR)).run(store.load(A0))
    assert store.get(A0) is None


def test_all_queues_are_told_changed_or_not() -> None:
    store = RemoteOffsetStore(ROUTES, "g")
    store.update(A0, 1)
    store.update(A1, 2)
    store.update(B0, 3)
    for _ in range(2):
        script = Script()
        assert script.run(store.persist()) == {}
        assert not script.asks
        assert told(script) == {("m:1", 0): 1, ("m:1", 1): 2, ("s:1", 0): 3}


def test_some_queues_are_told() -> None:
    store = RemoteOffsetStore(ROUTES, "g")
    store.update(A0, 1)
    store.update(A1, 2)
    script = Script()
    script.run(store.persist([A1, B0]))
    assert told(script) == {("m:1", 1): 2}


def test_a_failure_keeps_no_other_queue_from_being_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = RemoteOffsetStore(ROUTES, "g")
    for number, queue in enumerate((A0, GONE, A1)):
        store.update(queue, number)
    script = Script(ConnectionLostError("m:1", "reset"))
    with caplog.at_level(logging.WARNING):
        failed = script.run(store.persist())
    assert set(failed) == {A0, GONE}
    assert isinstance(failed[GONE], NoRouteError)
    assert told(script)[("m:1", 1)] == 2
    assert "group g: offset 0 of" in caplog.text


def test_the_last_word_can_be_waited_for() -> None:
    store = RemoteOffsetStore(ROUTES, "g")
    store.update(A0, 1)
    store.update(A1, 2)
    script = Script(reply(code=ResponseCode.SYSTEM_ERROR), reply())
    failed = script.run(store.persist(is_oneway=False))
    assert set(failed) == {A0}
    assert not script.tells
    assert told(script) == {("m:1", 0): 1, ("m:1", 1): 2}


async def test_a_real_broker_keeps_them(tmp_path: Path) -> None:
    queues = [
        MessageQueue(topic="Orders", broker_name="broker-a", queue_id=number) for number in range(4)
    ]
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        await it.create_topic("Orders")
        await client.route("Orders")
        store = RemoteOffsetStore(client.routes, "g")
        for queue in queues[:3]:
            store.update(queue, queue.queue_id + 1)
        assert await client.run(store.persist()) == {}
        assert await client.run(store.persist(is_oneway=False)) == {}
        again = RemoteOffsetStore(client.routes, "g")
        for queue in queues[:3]:
            assert await client.run(again.load(queue)) == queue.queue_id + 1
        # The broker's own word for a young queue.
        assert await client.run(fetch_offset(client.routes, "g", queues[3])) == 0


# --- the file --------------------------------------------------------------------------------

JAVA_TEXT: Final = (
    b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n'
    b'\t\t}:12,{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":1,\n\t\t\t"topic":"T"\n\t\t}:7\n'
    b"\t}\n}"
)
"""What OffsetSerializeWrapper.toJson of client 4.9.8 gives; only the order of queues is ours."""


@pytest.fixture
def file(tmp_path: Path) -> LocalOffsetFile:
    return LocalOffsetFile(local_offset_path(tmp_path, "10.0.0.9@DEFAULT", "g"))


def test_the_path_is_that_of_stock_clients(tmp_path: Path) -> None:
    path = local_offset_path(tmp_path, "10.0.0.9@DEFAULT", "%g|1")
    assert path == tmp_path / "10.0.0.9@DEFAULT" / "%g|1" / "offsets.json"


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "a\0b"])
def test_a_name_that_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="client_id"):
        local_offset_path(tmp_path, name, "g")
    with pytest.raises(ConfigError, match="group"):
        local_offset_path(tmp_path, "id", name)


def test_what_is_written_is_what_java_writes(file: LocalOffsetFile) -> None:
    assert file.read() == {}
    file.write({A1: 7, A0: 12})
    assert file.path.read_bytes() == JAVA_TEXT
    assert file.read() == {A0: 12, A1: 7}
    file.write({})
    assert file.path.read_bytes() == b'{\n\t"offsetTable":{}\n}'
    file.path.unlink()
    file.write({})
    assert file.path.exists()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(JAVA_TEXT, id="indented"),
        pytest.param(
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:12,'
            b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:7}}',
            id="compact",
        ),
        pytest.param(
            b'{"offsetTable":{"{\\"brokerName\\":\\"broker-a\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}":12,'
            b'"{\\"brokerName\\":\\"broker-a\\",\\"queueId\\":1,\\"topic\\":\\"T\\"}":7}}',
            id="keys as text",
        ),
    ],
)
def test_what_java_wrote_is_read(file: LocalOffsetFile, text: bytes) -> None:
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(text)
    assert file.read() == {A0: 12, A1: 7}


def test_the_one_before_is_kept(file: LocalOffsetFile) -> None:
    file.write({A0: 1})
    assert not file.backup_path.exists()
    file.write({A0: 2})
    file.write({A0: 2})
    assert file.read() == {A0: 2}
    file.path.unlink()
    assert file.read() == {A0: 1}
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["offsets.json.bak"]


@pytest.mark.parametrize(
    "damaged",
    [b"", b"  \n", b"\0" * 50, JAVA_TEXT[:-20], b'{"offsetTable":5}', b"[]", b"not json"],
)
def test_a_damaged_file_is_replaced_by_the_one_before(
    file: LocalOffsetFile, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file.write({A0: 1})
    file.write({A0: 2})
    file.path.write_bytes(damaged)
    with caplog.at_level(logging.WARNING):
        assert file.read() == {A0: 1}
    assert str(file.path) in caplog.text
    assert "the one before is used" in caplog.text
    # Without one before, nobody starts anew unasked.
    file.backup_path.unlink()
    with pytest.raises(CorruptStoreError, match=r"offsets\.json\.bak is not there") as caught:
        file.read()
    assert caught.value.hint is not None
    file.backup_path.write_bytes(damaged)
    with pytest.raises(CorruptStoreError):
        file.read()


def test_a_crash_between_the_two_renames_loses_nothing(file: LocalOffsetFile) -> None:
    file.write({A0: 1})
    file.path.replace(file.backup_path)
    again = LocalOffsetFile(file.path)
    assert again.read() == {A0: 1}
    again.write({A0: 2})
    assert again.read() == {A0: 2}


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("a file where a folder should be")
    file = LocalOffsetFile(local_offset_path(tmp_path, "id", "g"))
    with pytest.raises(StorageError, match=r"cannot write .*offsets\.json"):
        file.write({A0: 1})
    with pytest.raises(StorageError, match=r"cannot read .*offsets\.json"):
        file.read()


def test_offsets_below_0_are_none(file: LocalOffsetFile) -> None:
    file.write({A0: -1, A1: 2})
    assert file.read() == {A1: 2}


queues = st.builds(
    MessageQueue,
    topic=st.text(max_size=10),
    broker_name=st.text(max_size=10),
    queue_id=st.integers(-(2**31), 2**31 - 1),
)


@given(st.dictionaries(queues, st.integers(0, 2**63 - 1), max_size=5))
def test_any_offsets_come_back(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[MessageQueue, int]
) -> None:
    file = LocalOffsetFile(tmp_path_factory.mktemp("offsets") / "offsets.json")
    file.write(offsets)
    assert file.read() == offsets


def test_the_local_store_goes_by_the_file_and_keeps_what_is_not_its_own(
    file: LocalOffsetFile,
) -> None:
    file.write({A0: 5, OTHER: 8})
    store = LocalOffsetStore(file.read())
    assert store.get(A0) is None
    assert store.load(A0) == 5
    assert store.get(A0) == 5
    assert store.load(A1) is None
    store.update(A0, 6)
    store.update(A1, 1)
    file.write(store.content([A0]))
    assert file.read() == {A0: 6, OTHER: 8}
    store.forget(A0)
    file.write(store.content())
    assert file.read() == {A0: 6, A1: 1, OTHER: 8}
    # Back again in this process, or in the next one.
    assert store.load(A0) == 6
    assert LocalOffsetStore(file.read()).load(A1) == 1
