"""Which task reads what: bounds, splits and gaps, without files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.errors import ConfigError
from rmq.model.offsets import PhysicalOffset
from rmq.spark.files.planning import Bounds, LogPart, bounds, gaps, parts
from rmq.spark.files.settings import store_options
from rmq.store.reader.files import SegmentFile

SEGMENT = 1000


def segments(*numbers: int) -> list[SegmentFile]:
    return [SegmentFile(number * SEGMENT, SEGMENT, Path(f"{number}")) for number in numbers]


def planned(start: int, stop: int, split_bytes: int, *numbers: int, step: int = 7) -> list[LogPart]:
    """Plan over a log in which a record begins at every multiple of `step`."""

    def next_sound(offset: int, limit: int) -> PhysicalOffset | None:
        found = PhysicalOffset(-(-offset // step) * step)
        return found if found < limit else None

    return list(
        parts(
            segments(*(numbers or (0, 1, 2))),
            SEGMENT,
            PhysicalOffset(start),
            PhysicalOffset(stop),
            split_bytes,
            next_sound,
        )
    )


def spans(found: list[LogPart]) -> list[tuple[int, int, bool]]:
    return [(part.start, part.stop, part.is_stop_boundary) for part in found]


def test_segments_are_split_at_records_and_not_near_their_end() -> None:
    assert spans(planned(0, 2500, 300)) == [
        (0, 301, True),
        (301, 602, True),
        (602, 1000, False),
        (1000, 1302, True),
        (1302, 1603, True),
        (1603, 2000, False),
        (2000, 2303, True),
        (2303, 2500, False),
    ]
    assert spans(planned(0, 3000, 0)) == [
        (0, 1000, False),
        (1000, 2000, False),
        (2000, 3000, False),
    ]
    assert spans(planned(700, 701, 300)) == [(700, 701, False)]
    assert spans(planned(700, 700, 300)) == []
    assert spans(planned(0, 1000, 300, step=5000)) == [(0, 1000, False)]


def test_a_part_knows_its_segment() -> None:
    part = planned(1300, 1400, 0)[0]
    assert part == LogPart(Path("1"), 1000, SEGMENT, 1300, 1400, is_stop_boundary=False)
    assert part.segment_end == 2000


@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(1, 1200), st.integers(1, 400))
@settings(max_examples=60)
def test_parts_follow_each_other_and_cover_everything(
    start: int, stop: int, split_bytes: int, step: int
) -> None:
    found = planned(start, stop, split_bytes, step=step)
    place = start
    for part in found:
        assert part.start == place
        assert part.first <= part.start < part.stop <= part.segment_end
        place = part.stop
    assert place == max(start, stop) if stop > start else not found


def options(**values: int) -> dict[str, str]:
    return {"path": "/s"} | {key: str(value) for key, value in values.items()}


def test_bounds_are_those_of_the_log_unless_told_otherwise() -> None:
    assert bounds(store_options(options()), 100, 900) == Bounds(100, 900, 0)
    limited = store_options(options(fromOffset=200, toOffset=300))
    assert bounds(limited, 100, 900) == Bounds(200, 300, 0)
    assert bounds(limited, 250, 280) == Bounds(250, 280, 50)
    assert bounds(limited, 0, 200) == Bounds(200, 200, 0)
    assert bounds(store_options(options(toOffset=50)), 100, 900) == Bounds(100, 50, 0)
    with pytest.raises(ConfigError, match="200 is behind the end of the log, 199"):
        bounds(limited, 0, 199)


def test_missing_segments_are_found() -> None:
    assert list(gaps(segments(0, 1, 2), SEGMENT, 0, 3000)) == []
    assert list(gaps(segments(0, 2), SEGMENT, 0, 2000)) == []
    assert list(gaps(segments(0, 2), SEGMENT, 2000, 3000)) == []
    found = list(gaps(segments(0, 2, 5), SEGMENT, 0, 6000))
    assert [error.offset for error in found] == [1000, 3000]
    assert "from 1000 on, are missing" in str(found[0])
    (inside,) = gaps(segments(0, 2), SEGMENT, 1500, 3000)
    assert inside.offset == 1500
