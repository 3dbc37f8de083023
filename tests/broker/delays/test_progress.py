"""How far delayed messages were delivered: saved as far as it is on disk, and taken up again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from rmq.broker.delays.file import SavedDelays, progress_after_cut
from rmq.errors import MalformedJsonError
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.bodies.base import BodyError
from tests.broker.delays.delay_kit import TOPIC, Delays
from tests.broker.send_kit import START_MS, WallClock
from tests.broker.tables.table_kit import golden_files
from tests.remoting.server_kit import Logs

if TYPE_CHECKING:
    from rmq.testing.storage import MemoryStorage


def restarted(delays: Delays, storage: MemoryStorage, saved: str | None) -> Delays:
    """Return what the next process finds, with the progress that was saved."""
    return Delays(storage, clock=WallClock(delays.clock.ms), saved=saved)


# --- the file --------------------------------------------------------------------------------


def test_progress_has_the_form_of_4_9_8() -> None:
    delays = Delays()
    assert delays.delivery.render() == '{\n\t"offsetTable":{}\n}'
    for number in range(3):
        delays.park(b"%d" % number, 1)
    delays.park(b"x", 3)
    delays.at(10_000)
    delays.core.flush()
    end = delays.core.log.written
    assert delays.delivery.render() == (
        f'{{\n\t"offsetTable":{{1:3,3:1\n\t}},\n\t"trail":{{{end}:{{1:3,3:1\n\t\t}}\n\t}}\n}}'
    )


def test_a_cut_log_takes_deliveries_back() -> None:
    delays = Delays()
    saved: list[tuple[int, str]] = []
    for number in range(4):
        delays.park(b"%d" % number, 1 + number % 2)
        delays.at(10_000 * (number + 1))
        delays.core.flush()
        saved.append((delays.core.log.written, delays.delivery.render()))
    text = saved[-1][1]
    for end, then in saved[:-1]:
        assert progress_after_cut(text, PhysicalOffset(end)) == then
        assert progress_after_cut(text, PhysicalOffset(end + 1)) == then
    assert progress_after_cut(text, PhysicalOffset(saved[-1][0])) is None
    assert progress_after_cut(text, PhysicalOffset(saved[0][0] - 1)) == '{\n\t"offsetTable":{}\n}'


def test_without_a_word_of_what_it_rests_on_no_progress_is_left_of_a_cut_log() -> None:
    """The master says next how far it is."""
    text = '{"offsetTable":{1:3}}'
    assert progress_after_cut(text, PhysicalOffset(1_000_000)) == '{\n\t"offsetTable":{}\n}'
    delays = Delays()
    for _ in range(3):
        delays.park(b"x")
    delays.delivery.stop()
    delays.delivery.load(text)
    changes = delays.delivery.changes
    delays.delivery.begin_trail(PhysicalOffset(1_000))
    assert delays.delivery.changes != changes, "it is to be saved"
    known = delays.delivery.render()
    delays.delivery.begin_trail(PhysicalOffset(9_000))
    assert delays.delivery.render() == known
    assert progress_after_cut(known, PhysicalOffset(1_000)) is None
    assert progress_after_cut(known, PhysicalOffset(999)) == '{\n\t"offsetTable":{}\n}'


def test_what_a_file_rests_on_is_known_after_a_restart() -> None:
    delays = Delays()
    delays.park(b"a")
    delays.at(1_000)
    delays.core.flush()
    first = delays.core.log.written
    again = restarted(delays, delays.storage.kill(), delays.delivery.render())
    again.park(b"b")
    again.at(2_000)
    again.core.flush()
    cut = progress_after_cut(again.delivery.render(), first)
    assert cut is not None
    assert SavedDelays.decode(cut.encode()).offset_table == {1: 1}


@pytest.mark.parametrize("name", sorted(golden_files("delayOffset.json")))
def test_what_a_stock_broker_saved_is_read(name: str) -> None:
    text = golden_files("delayOffset.json")[name]
    delays = Delays(levels=" ".join(["1s"] * 18))
    for level in range(1, 19):
        for number in range(10):
            delays.park(b"%d" % number, level)
    delays.delivery.load(text)
    rendered = delays.delivery.render()
    if name.startswith("clean-slave"):
        # A slave saves what its master answered, which is written without blanks.
        rendered = "".join(rendered.split())
    assert rendered == text


@pytest.mark.parametrize("text", ["", "[]", "{", '{"offsetTable":{"a":1}}', '{"offsetTable":[1]}'])
def test_what_is_no_progress_is_refused(text: str) -> None:
    with pytest.raises((BodyError, MalformedJsonError)):
        Delays().delivery.load(text)


def test_levels_that_are_not_configured_any_longer_keep_their_progress() -> None:
    delays = Delays(levels="1s 5s 10s")
    for number in range(2):
        delays.park(b"%d" % number, 3)
    delays.at(10_000)
    delays.core.flush()
    saved = delays.delivery.render()
    fewer = Delays(
        delays.storage.kill(), clock=WallClock(delays.clock.ms), levels="1s", saved=saved
    )
    fewer.park(b"short", 1)
    fewer.at(20_000)
    fewer.core.flush()
    saved = fewer.delivery.render()
    again = Delays(fewer.storage.kill(), clock=WallClock(fewer.clock.ms), saved=saved)
    again.at(3_600_000)
    assert again.delivered() == [b"0", b"1", b"short"], "nothing twice"


def test_a_level_that_is_not_configured_delivers_nothing_and_loses_nothing() -> None:
    delays = Delays(levels="1s 5s 10s")
    delays.park(b"a", 3)
    delays.core.flush()
    fewer = Delays(delays.storage.kill(), levels="1s", saved=delays.delivery.render())
    fewer.at(3_600_000)
    assert fewer.delivered() == []
    again = Delays(fewer.storage.kill(), saved=fewer.delivery.render())
    again.at(3_600_000)
    assert again.delivered() == [b"a"]


def test_progress_beyond_the_queue_goes_on_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    # So a stock broker may leave it after a power cut.
    delays = Delays()
    for number in range(3):
        delays.park(b"%d" % number)
    delays.core.flush()
    later = Delays(delays.storage.kill(), saved='{"offsetTable":{1:7,2:1}}')
    assert Logs(caplog).lines == [
        "delay level 1 was at 7, but its queue ends at 3",
        "delay level 2 was at 1, but its queue ends at 0",
    ]
    later.park(b"new", 1)
    later.park(b"other", 2)
    later.at(10_000)
    assert later.delivered() == [b"new", b"other"]


def test_progress_below_zero_is_none() -> None:
    delays = Delays()
    delays.park(b"a")
    delays.delivery.load('{"offsetTable":{1:-5}}')
    delays.at(1_000)
    assert delays.delivered() == [b"a"]


def test_without_a_file_delivery_begins_at_the_first_message() -> None:
    delays = Delays()
    delays.park(b"a")
    delays.core.flush()
    later = Delays(delays.storage.kill())
    later.at(1_000)
    assert later.delivered() == [b"a"]


# --- what is saved, and when -----------------------------------------------------------------


def saved_offsets(delays: Delays) -> dict[int, int]:
    return dict(delays.delivery.to_body().offset_table)


def test_progress_is_saved_as_far_as_its_outcome_is_on_disk() -> None:
    delays = Delays()
    for number in range(4):
        delays.park(b"%d" % number, 1)
        delays.clock.ms += 100
    delays.at(1_000)
    delays.at(1_100)
    assert delays.delivery.progress()[1] == (2, 4)
    assert saved_offsets(delays) == {}
    changes = delays.delivery.changes
    delays.core.flush()
    assert delays.delivery.changes != changes
    assert saved_offsets(delays) == {1: 2}
    delays.at(1_200)
    changes = delays.delivery.changes
    assert saved_offsets(delays) == {1: 2}
    assert delays.delivery.changes == changes
    delays.core.flush()
    assert saved_offsets(delays) == {1: 3}


def test_messages_that_are_passed_over_do_not_run_ahead_of_those_before_them() -> None:
    delays = Delays()
    delays.park(b"a")
    delays.park_raw(b"nowhere")
    delays.clock.ms += 500
    delays.park_raw(b"nowhere")
    delays.core.flush()
    delays.at(1_000)
    assert saved_offsets(delays) == {}
    delays.at(1_500)
    assert delays.delivery.progress()[1] == (3, 3)
    assert saved_offsets(delays) == {}
    delays.core.flush()
    assert saved_offsets(delays) == {1: 3}


def test_messages_that_are_passed_over_alone_are_done_with() -> None:
    delays = Delays()
    delays.park_raw(b"nowhere")
    delays.at(1_000)
    assert saved_offsets(delays) == {1: 1}


def test_a_restart_goes_on_where_it_was() -> None:
    delays = Delays()
    for number in range(6):
        delays.clock.ms = START_MS + 1_000 * number
        delays.park(b"%d" % number, 2)
    delays.at(7_000)
    assert delays.delivered() == [b"0", b"1", b"2"]
    delays.core.close()
    later = restarted(delays, delays.storage, delays.delivery.render())
    assert later.at(7_000) == 8_000
    later.at(20_000)
    assert later.delivered() == [b"%d" % number for number in range(6)]
    assert later.delivery.progress()[2] == (6, 6)


def test_a_killed_process_delivers_twice_at_worst_what_was_not_flushed() -> None:
    delays = Delays()
    for number in range(6):
        delays.park(b"%d" % number)
    delays.core.flush()
    delays.at(1_000)
    saved = delays.delivery.render()
    later = restarted(delays, delays.storage.kill(), saved)
    later.at(2_000)
    assert later.delivered() == [b"%d" % number for number in [*range(6), *range(6)]]


# --- power cuts ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_no_power_cut_loses_a_delayed_message(seed: int) -> None:
    """One history of parking, delivering, flushing and saving, cut off anywhere.

    What was acknowledged (on disk when the power went) is delivered, at most twice per cut.
    """
    choose = random.Random(seed)
    delays = Delays()
    saved: str | None = None
    parked: list[bytes] = []
    """What must not be lost: all that was parked up to the last flush."""
    pending: list[bytes] = []
    cuts = 0
    for number in range(120):
        action = choose.random()
        if action < 0.45:
            body = b"%d" % number
            delays.park(body, choose.choice([1, 1, 2]))
            pending.append(body)
        elif action < 0.70:
            delays.clock.ms += choose.choice([100, 500, 1_000])
            delays.delivery.deliver()
        elif action < 0.80:
            delays.core.flush()
            parked += pending
            pending = []
        elif action < 0.88:
            saved = delays.delivery.render()
        elif action < 0.94:
            delays.storage.write_back(choose)
        else:
            delays = restarted(delays, delays.storage.crash(choose), saved)
            pending = []
            cuts += 1
    delays.clock.ms += 60_000
    delays.deliver_all()
    delivered = delays.delivered(TOPIC)
    for body in parked:
        assert 1 <= delivered.count(body) <= 1 + cuts, f"{body!r} of {delivered}"


def test_progress_saved_ahead_of_the_log_would_lose_messages() -> None:
    # What the test above would find if progress were saved as 4.9.8 does it.
    delays = Delays()
    delays.park(b"a")
    delays.core.flush()
    delays.at(1_000)
    ahead = '{"offsetTable":{1:1}}'
    cut = restarted(delays, delays.storage.crash(lambda _count: 0), ahead)
    cut.at(60_000)
    assert cut.delivered() == []
    sound = restarted(delays, delays.storage.crash(lambda _count: 0), delays.delivery.render())
    sound.at(60_000)
    assert sound.delivered() == [b"a"]
