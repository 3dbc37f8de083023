"""Ids of messages: their format, that they are unique, and clocks that jump."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.producing.unique_keys import UniqueKeys, month_of, new_unique_keys
from rmq.errors import ConfigError
from tests.remoting.frames import captured

if TYPE_CHECKING:
    from collections.abc import Iterator

IP: Final = bytes((10, 0, 0, 9))
NOW_MS: Final = 1_794_797_297_877
"""2026-11-16, 01:08:17.877 UTC: when the golden producer sent its first message."""


@pytest.fixture
def utc() -> Iterator[None]:
    """The golden ids were made by a machine in UTC."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def captured_keys() -> list[tuple[str, int]]:
    """The ids of the golden producer, and when the messages were sent."""
    found = []
    for frame in captured("producer"):
        if frame.kind != "response" and frame.code == 310:
            assert frame.ext is not None
            pairs = dict(pair.split("\x01") for pair in frame.ext["i"].split("\x02"))
            found.append((pairs["UNIQ_KEY"], int(frame.ext["g"])))
    return found


@pytest.mark.usefixtures("utc")
def test_ids_are_those_of_a_stock_client() -> None:
    ids = captured_keys()
    assert len(ids) == 11
    first = ids[0][0]
    keys = UniqueKeys(bytes.fromhex(first[:32]), int(first[32:36], 16), int(first[36:44], 16))
    expected = 0
    for text, sent_at_ms in ids:
        # The id was made a little before the header: take its own time.
        made_at_ms = month_of(sent_at_ms)[0] + int(text[44:52], 16)
        assert 0 <= sent_at_ms - made_at_ms < 100
        while expected < int(text[52:], 16):
            # The batch of five has ids as well, which are in its body.
            keys.next(made_at_ms)
            expected += 1
        assert keys.next(made_at_ms) == text
        expected += 1
    assert len(text) == 56


@pytest.mark.usefixtures("utc")
def test_an_address_of_four_bytes_makes_ids_of_32_digits() -> None:
    keys = UniqueKeys(IP, 0x12345, -1)
    start_ms, _ = month_of(NOW_MS)
    assert keys.next(start_ms + 0x1F) == "0A0000092345FFFFFFFF0000001F0000"
    assert keys.next(start_ms + 0x1F) == "0A0000092345FFFFFFFF0000001F0001"


def test_the_counter_wraps_after_65536_ids() -> None:
    keys = UniqueKeys(IP, 1, 2)
    ids = [keys.next(NOW_MS) for _ in range(65_537)]
    assert len(set(ids)) == 65_536
    assert ids[0] == ids[-1]


def test_many_at_once_are_as_one_by_one() -> None:
    one_by_one, at_once = UniqueKeys(IP, 1, 2), UniqueKeys(IP, 1, 2)
    for count in (0, 1, 65_530, 10):
        expected = [one_by_one.next(NOW_MS) for _ in range(count)]
        assert at_once.many(NOW_MS, count) == expected
    assert at_once.next(NOW_MS + 1) == one_by_one.next(NOW_MS + 1)


def test_a_new_month_counts_from_its_own_beginning() -> None:
    keys = UniqueKeys(IP, 1, 2)
    start_ms, end_ms = month_of(NOW_MS)
    assert keys.next(end_ms - 1)[20:28] == f"{end_ms - 1 - start_ms:08X}"
    assert keys.next(end_ms)[20:28] == "00000000"


@pytest.mark.parametrize(
    ("back_ms", "counted_from_month"),
    [
        pytest.param(10, True, id="a-little-stays-at-the-beginning"),
        pytest.param(40 * 24 * 3600 * 1000, False, id="weeks-are-another-month"),
    ],
)
def test_a_clock_set_back_into_another_month_gives_no_nonsense(
    back_ms: int, counted_from_month: bool
) -> None:
    keys = UniqueKeys(IP, 1, 2)
    start_ms, _ = month_of(NOW_MS)
    keys.next(start_ms)
    span = int(keys.next(start_ms - back_ms)[20:28], 16)
    if counted_from_month:
        assert span == 0
    else:
        assert span == start_ms - back_ms - month_of(start_ms - back_ms)[0]
    assert span < 32 * 24 * 3600 * 1000


@given(
    st.lists(st.integers(0, 4_000_000_000_000), min_size=1, max_size=50),
    st.integers(0, 2**32 - 1),
)
def test_ids_have_one_length_and_differ_whatever_the_clock_does(
    times_ms: list[int], loader_hash: int
) -> None:
    keys = UniqueKeys(IP, os.getpid(), loader_hash)
    ids = [keys.next(now_ms) for now_ms in times_ms]
    assert len(set(ids)) == len(ids)
    assert {len(text) for text in ids} == {32}
    assert all(set(text) <= set("0123456789ABCDEF") for text in ids)


def test_ids_of_a_process_begin_with_its_address() -> None:
    assert (
        new_unique_keys("10.0.0.9").next(NOW_MS).startswith(f"0A000009{os.getpid() & 0xFFFF:04X}")
    )
    assert len(new_unique_keys("fe80::1%eth0").next(NOW_MS)) == 56
    assert len(new_unique_keys("build-host").next(NOW_MS)) == 32
    # Two of one process are told apart by their third part.
    one, other = new_unique_keys("10.0.0.9"), new_unique_keys("10.0.0.9")
    assert one.next(NOW_MS) != other.next(NOW_MS)


def test_an_address_of_another_length_is_refused() -> None:
    with pytest.raises(ConfigError, match="5 bytes"):
        UniqueKeys(bytes(5), 1, 1)
