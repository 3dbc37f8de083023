"""A few rounds of kill -9, and proof that the rounds would notice a loss."""

from __future__ import annotations

import random
import zlib
from itertools import count
from typing import TYPE_CHECKING

import pytest

from rmq.store.core import StoreCore
from tests.store.kill.ledger import Ledger, LostError
from tests.store.kill.rounds import Report, run_rounds
from tests.store.kill.workload import Ack, Geometry, MessageName, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIME_MAX_S = 5.0
SEED = 498
START_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("rounds", "is_async", "is_transient"),
    [
        pytest.param(6, False, False, id="SYNC_FLUSH"),
        pytest.param(2, True, False, id="ASYNC_FLUSH"),
        pytest.param(2, True, True, id="transient-pool"),
    ],
)
def test_nothing_acknowledged_is_lost_by_killing_the_process(
    tmp_path: Path, rounds: int, is_async: bool, is_transient: bool
) -> None:
    report = run_rounds(
        rounds,
        SEED,
        tmp_path,
        is_async=is_async,
        is_transient=is_transient,
        time_max_s=TIME_MAX_S,
    )
    assert report.rounds >= 1
    assert report.killed + report.stopped == report.rounds
    assert report.recoveries >= report.rounds


def test_a_report_tells_what_was_done() -> None:
    report = Report(rounds=3, stores=1, killed=2, stopped=1, acknowledged=70)
    report.deaths["load"] += 2
    assert str(report).startswith("3 rounds on 1 stores")
    assert "2 killed, 1 stopped (load 2)" in str(report)


# --- would it notice? -----------------------------------------------------------------------


class Sound:
    """A store with some steps of the workload in it, all acknowledged."""

    def __init__(self, root: Path, steps: int = 40, *, has_time_passing: bool = True) -> None:
        self.has_time_passing = has_time_passing
        self.geometry = Geometry(
            seed=SEED,
            segment_bytes=16 * 1024,
            log_folders=1,
            queue_segment_entries=16,
            index_slots=50,
            index_entries=120,
            recovery_point_bytes=1024 * 1024,
            recovery_point_interval_ms=10_000,
            topics=2,
            queues=2,
        )
        self.root = root
        self.workload = Workload(self.geometry)
        self.ledger = Ledger(self.geometry)
        self.open()
        for step in range(steps):
            self.append(step)

    def open(self) -> None:
        clock = count(len(self.ledger.acks) + START_MS)
        self.core = StoreCore(
            self.geometry.config(self.root),
            now_ms=clock.__next__ if self.has_time_passing else lambda: START_MS,
        )

    def append(self, step: int, *, acknowledge: bool = True) -> None:
        messages, is_batch = self.workload.step(0, 0, step)
        append = self.core.append_batch if is_batch else self.core.append
        for member, (message, result) in enumerate(zip(messages, append(messages), strict=True)):
            if acknowledge:
                self.ledger.add(
                    Ack(
                        str(MessageName(0, 0, step, member)),
                        message.topic,
                        message.queue_id,
                        result.queue_offset,
                        result.physical_offset,
                        result.size,
                        zlib.crc32(message.body),
                    )
                )

    def save_point(self) -> None:
        plan = self.core.plan_point()
        assert plan is not None
        plan.run()
        self.core.finish_point(plan)

    def check(self) -> None:
        self.ledger.check(self.core, random.Random(SEED))

    def complaint(self) -> str:
        with pytest.raises(LostError) as caught:
            self.check()
        return str(caught.value)


@pytest.fixture
def sound(tmp_path: Path) -> Iterator[Sound]:
    store = Sound(tmp_path / "store")
    yield store
    store.core.release()


def test_a_sound_store_passes_and_may_have_more_than_was_acknowledged(sound: Sound) -> None:
    sound.check()
    sound.append(40, acknowledge=False)
    sound.check()


def test_a_message_that_is_gone_is_noticed(sound: Sound) -> None:
    ack = next(iter(sound.ledger.acks.values()))
    sound.ledger.add(ack._replace(name="0-0-41-0", physical_offset=10**6))
    assert "0-0-41-0 is gone, it was acknowledged" in sound.complaint()


@pytest.mark.parametrize(
    "field", ["queue_id", "queue_offset", "physical_offset", "size", "body_crc"]
)
def test_a_message_that_is_not_where_it_was_said_to_be_is_noticed(sound: Sound, field: str) -> None:
    name, ack = next(iter(sound.ledger.acks.items()))
    sound.ledger.acks[name] = ack._replace(**{field: getattr(ack, field) + 1})
    assert f"{name} was acknowledged as" in sound.complaint()


def test_a_message_that_is_there_twice_is_noticed(sound: Sound) -> None:
    sound.append(39, acknowledge=False)
    assert "is there twice" in sound.complaint()


def test_messages_out_of_order_are_noticed(sound: Sound) -> None:
    for step in range(60, 50, -1):
        sound.append(step, acknowledge=False)
    assert "comes after" in sound.complaint()


def test_a_message_that_nobody_wrote_is_noticed(sound: Sound) -> None:
    message, *_ = sound.workload.step(0, 0, 0).messages
    other = message.properties.replace(b"0-0-0-0", b"0-0-0-9")
    sound.core.append([type(message)(message.topic, message.queue_id, message.body, other)])
    assert "'0-0-0-9' was never written" in sound.complaint()


def test_another_body_is_noticed(sound: Sound) -> None:
    message, *_ = sound.workload.step(0, 0, 70).messages
    sound.core.append(
        [type(message)(message.topic, message.queue_id, b"other", message.properties)]
    )
    assert "0-0-70-0 is not what was written" in sound.complaint()


def test_half_a_batch_is_noticed(sound: Sound) -> None:
    number = next(step for step in range(50, 99) if sound.workload.step(0, 0, step).is_batch)
    sound.core.append(sound.workload.step(0, 0, number).messages[:1])
    assert f"of batch 0-0-{number} there are 1 of" in sound.complaint()


def test_an_index_that_lost_its_entries_is_noticed(sound: Sound) -> None:
    assert sound.core.index is not None
    sound.core.index.delete_all()
    assert "leads to [], it is at" in sound.complaint()


def test_a_damaged_file_is_noticed(sound: Sound) -> None:
    ack = next(iter(sound.ledger.acks.values()))
    sound.core.close()
    sound.ledger.verify(sound.root)
    sound.ledger.check_unrecovered(sound.root, {ack.name})
    segment = min((sound.root / "commitlog").iterdir())
    content = bytearray(segment.read_bytes())
    content[ack.physical_offset + ack.size - 1] ^= 1
    segment.write_bytes(content)
    with pytest.raises(LostError):
        sound.ledger.verify(sound.root)


# --- what only exact moments show -----------------------------------------------------------


def check_without_point(store: Sound) -> None:
    """Kill the store and open it by the times of its checkpoint, without its recovery point."""
    store.core.release()
    (store.root / "recovery-point").unlink()
    store.open()
    assert not store.core.recovery.used_point
    store.check()
    store.core.close()
    store.ledger.verify(store.root)


def test_an_index_is_sound_after_a_kill_before_its_first_header(tmp_path: Path) -> None:
    check_without_point(Sound(tmp_path / "store", steps=1))


def test_an_index_is_sound_after_a_kill_between_a_file_and_its_header(sound: Sound) -> None:
    sound.save_point()
    sound.append(40)
    index_folder = sound.geometry.config(sound.root).index_path
    files = sorted(index_folder.iterdir())
    assert len(files) == 2
    (index_folder / f"{int(files[-1].name) + 1}").write_bytes(bytes(files[-1].stat().st_size))
    check_without_point(sound)


def test_an_index_is_sound_after_a_kill_in_the_millisecond_of_a_full_file(tmp_path: Path) -> None:
    # The checkpoint's time is that of the last full file, and the file after it is no younger.
    store = Sound(tmp_path / "store", has_time_passing=False)
    store.save_point()
    store.append(40)
    check_without_point(store)
