"""The rules of deletion, each at its boundary, and what holds whatever the circumstances."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.model.offsets import PhysicalOffset
from rmq.store.config import StoreConfig
from rmq.store.retention import (
    MANUAL_ROUNDS,
    Retention,
    RetentionDecision,
    SegmentAge,
    files_behind,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR_MS: Final = 3_600_000
NOW_MS: Final = 1_700_000_000_000
RESERVED_MS: Final = 72 * HOUR_MS
EXPIRED_MS: Final = NOW_MS - RESERVED_MS
FRESH_MS: Final = EXPIRED_MS + 1
SEGMENT_BYTES: Final = 1024
DELETE_HOUR: Final = 4
OTHER_HOUR: Final = 5


def config_with(
    *,
    used_ratio_max: float = 0.75,
    clean_forcibly: bool = True,
    delete_hours: frozenset[int] = frozenset({DELETE_HOUR}),
    delete_batch_max: int = 10,
) -> StoreConfig:
    return StoreConfig(
        root=Path("store"),
        disk_used_ratio_max=used_ratio_max,
        clean_forcibly=clean_forcibly,
        delete_hours=delete_hours,
        delete_batch_max=delete_batch_max,
    )


def segments_of(*modified_ms: int) -> list[SegmentAge]:
    return [
        SegmentAge(PhysicalOffset(place * SEGMENT_BYTES), modified)
        for place, modified in enumerate(modified_ms)
    ]


def one_round(
    retention: Retention,
    *,
    hour: int = OTHER_HOUR,
    log: float | Sequence[float] = 0.5,
    queues: float = 0.5,
    segments: Sequence[SegmentAge] | None = None,
) -> RetentionDecision:
    return retention.decide(
        now_ms=NOW_MS,
        local_hour=hour,
        log_used_ratios=[log] if isinstance(log, float) else log,
        queues_used_ratio=queues,
        segments=segments_of(EXPIRED_MS, EXPIRED_MS, FRESH_MS) if segments is None else segments,
    )


def places(decision: RetentionDecision) -> list[int]:
    """Return which segments go, as numbers of segments."""
    return [offset // SEGMENT_BYTES for offset in decision.delete]


# --- what calls for deletion ----------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    hour: int = OTHER_HOUR
    log: tuple[float, ...] = (0.5,)
    queues: float = 0.5
    used_ratio_max: float = 0.75


@pytest.mark.parametrize(
    ("circumstances", "deletes"),
    [
        pytest.param(Round(), False, id="nothing"),
        pytest.param(Round(hour=DELETE_HOUR), True, id="the hour"),
        pytest.param(Round(hour=3), False, id="the hour before"),
        pytest.param(Round(log=(0.75,)), False, id="log disk at the limit"),
        pytest.param(Round(log=(0.76,)), True, id="log disk above the limit"),
        pytest.param(Round(queues=0.75), False, id="queues' disk at the limit"),
        pytest.param(Round(queues=0.76), True, id="queues' disk above the limit"),
        pytest.param(Round(log=(-1.0,)), True, id="log disk unknown"),
        pytest.param(Round(queues=-1.0), True, id="queues' disk unknown"),
        pytest.param(Round(log=(0.0,), queues=0.0), False, id="empty disks"),
        pytest.param(Round(log=(0.99, 0.75)), False, id="least used log disk at the limit"),
        pytest.param(Round(log=(0.99, 0.76)), True, id="least used log disk above the limit"),
        pytest.param(Round(log=(0.5, -1.0)), True, id="one log disk unknown"),
        pytest.param(
            Round(log=(0.10,), queues=0.10, used_ratio_max=0.05),
            False,
            id="least setting, at its limit",
        ),
        pytest.param(
            Round(log=(0.11,), queues=0.10, used_ratio_max=0.05),
            True,
            id="least setting, above its limit",
        ),
        pytest.param(
            Round(log=(0.95,), used_ratio_max=0.99), False, id="greatest setting, at its limit"
        ),
        pytest.param(
            Round(log=(0.96,), used_ratio_max=0.99), True, id="greatest setting, above its limit"
        ),
    ],
)
def test_expired_segments_go_only_when_something_calls_for_it(
    circumstances: Round, deletes: bool
) -> None:
    retention = Retention(config_with(used_ratio_max=circumstances.used_ratio_max))
    decision = one_round(
        retention,
        hour=circumstances.hour,
        log=circumstances.log,
        queues=circumstances.queues,
    )
    assert places(decision) == ([0, 1] if deletes else [])


@pytest.mark.parametrize("hour", range(24))
def test_every_hour_of_the_setting_calls_for_deletion_and_no_other(hour: int) -> None:
    hours = frozenset({0, 4, 23})
    decision = one_round(Retention(config_with(delete_hours=hours)), hour=hour)
    assert bool(decision.delete) == (hour in hours)


def test_no_hour_at_all_leaves_deletion_to_the_disks() -> None:
    retention = Retention(config_with(delete_hours=frozenset()))
    assert not any(one_round(retention, hour=hour).delete for hour in range(24))
    assert one_round(retention, log=0.76).delete


# --- an operator's request ------------------------------------------------------------------


def test_an_operators_request_holds_for_twenty_rounds() -> None:
    retention = Retention(config_with())
    retention.arm_manual_deletion()
    rounds = [bool(one_round(retention).delete) for _ in range(MANUAL_ROUNDS + 5)]
    assert rounds == [True] * 20 + [False] * 5


def test_rounds_that_had_another_reason_count_too() -> None:
    retention = Retention(config_with())
    retention.arm_manual_deletion()
    one_round(retention, hour=DELETE_HOUR)
    one_round(retention, log=0.95)
    one_round(retention, segments=[])
    assert retention.manual_rounds_left == MANUAL_ROUNDS - 3


def test_asking_again_begins_anew_and_does_not_add_up() -> None:
    retention = Retention(config_with())
    retention.arm_manual_deletion()
    for _ in range(7):
        one_round(retention)
    retention.arm_manual_deletion()
    assert retention.manual_rounds_left == MANUAL_ROUNDS


def test_an_operators_request_does_not_delete_before_the_time() -> None:
    retention = Retention(config_with())
    retention.arm_manual_deletion()
    assert places(one_round(retention, segments=segments_of(FRESH_MS, FRESH_MS))) == []


def test_looking_at_the_disks_uses_up_no_round() -> None:
    retention = Retention(config_with())
    retention.arm_manual_deletion()
    retention.check_disks(log_used_ratios=[0.95], queues_used_ratio=0.95)
    assert retention.manual_rounds_left == MANUAL_ROUNDS


# --- which segments go ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modified_ms", "gone"),
    [
        pytest.param([], [], id="no segment"),
        pytest.param([EXPIRED_MS], [], id="only the last"),
        pytest.param([EXPIRED_MS, EXPIRED_MS], [0], id="never the last"),
        pytest.param([EXPIRED_MS, FRESH_MS], [0], id="exactly at its time"),
        pytest.param([FRESH_MS, FRESH_MS], [], id="a millisecond before its time"),
        pytest.param([NOW_MS + HOUR_MS, FRESH_MS], [], id="modified in the future"),
        pytest.param([0, 0, FRESH_MS, 0, 0], [0, 1], id="the first that stays keeps the rest"),
        pytest.param([0] * 11, list(range(10)), id="ten and the last"),
        pytest.param([0] * 12, list(range(10)), id="no more than ten in a round"),
    ],
)
def test_segments_go_once_their_time_is_over(modified_ms: list[int], gone: list[int]) -> None:
    decision = one_round(
        Retention(config_with()), hour=DELETE_HOUR, segments=segments_of(*modified_ms)
    )
    assert places(decision) == gone


def test_offsets_are_those_of_the_segments_whatever_the_log_begins_with() -> None:
    segments = [SegmentAge(PhysicalOffset(7000 + 1000 * n), 0) for n in range(3)]
    decision = one_round(Retention(config_with()), hour=DELETE_HOUR, segments=segments)
    assert decision.delete == (7000, 8000)


def test_segments_out_of_order_are_refused() -> None:
    with pytest.raises(AssertionError, match="oldest first"):
        one_round(Retention(config_with()), segments=segments_of(0, 0)[::-1])


@pytest.mark.parametrize(
    ("circumstances", "at_once"),
    [
        pytest.param(Round(log=(0.85,)), False, id="log disk at the limit"),
        pytest.param(Round(log=(0.86,)), True, id="log disk above the limit"),
        pytest.param(Round(log=(0.91,)), True, id="log disk full"),
        pytest.param(Round(queues=0.85), False, id="queues' disk at the limit"),
        pytest.param(Round(queues=0.86), True, id="queues' disk above the limit"),
        pytest.param(Round(log=(0.99, 0.85)), False, id="least used log disk at the limit"),
        pytest.param(Round(log=(0.99, 0.86)), True, id="every log disk above the limit"),
        pytest.param(Round(log=(-1.0, 0.99)), False, id="one log disk unknown"),
        pytest.param(Round(log=(-1.0,), queues=0.99), False, id="queues not asked: log unknown"),
        pytest.param(Round(log=(0.76,), queues=0.99), False, id="queues not asked: log calls"),
        pytest.param(Round(log=(0.75,), queues=0.99), True, id="queues asked: log does not call"),
        pytest.param(
            Round(log=(0.86,), used_ratio_max=0.95), False, id="above it, but nothing calls"
        ),
        pytest.param(
            Round(log=(0.86,), used_ratio_max=0.95, hour=DELETE_HOUR), True, id="the hour calls"
        ),
        pytest.param(
            Round(log=(0.86,), used_ratio_max=0.95, queues=-1.0), True, id="the queues call"
        ),
    ],
)
def test_above_the_clean_ratio_segments_go_before_their_time(
    circumstances: Round, at_once: bool
) -> None:
    for clean_forcibly in (True, False):
        retention = Retention(
            config_with(used_ratio_max=circumstances.used_ratio_max, clean_forcibly=clean_forcibly)
        )
        decision = one_round(
            retention,
            hour=circumstances.hour,
            log=circumstances.log,
            queues=circumstances.queues,
            segments=segments_of(FRESH_MS, NOW_MS, NOW_MS),
        )
        assert decision.clean_immediately == (at_once and clean_forcibly)
        assert places(decision) == ([0, 1] if at_once and clean_forcibly else [])


def test_cleaning_at_once_leaves_the_last_segment_and_keeps_to_the_batch() -> None:
    retention = Retention(config_with(delete_batch_max=3))
    assert places(one_round(retention, log=0.99, segments=segments_of(*[NOW_MS] * 3))) == [0, 1]
    assert places(one_round(retention, log=0.99, segments=segments_of(*[NOW_MS] * 9))) == [0, 1, 2]
    assert places(one_round(retention, log=0.99, segments=segments_of(NOW_MS))) == []


# --- is the disk full -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("circumstances", "full"),
    [
        pytest.param(Round(log=(0.90,)), False, id="log disk at the limit"),
        pytest.param(Round(log=(0.91,)), True, id="log disk above the limit"),
        pytest.param(Round(log=(0.99, 0.90)), False, id="least used log disk at the limit"),
        pytest.param(Round(log=(0.99, 0.91)), True, id="every log disk above the limit"),
        pytest.param(Round(log=(0.99, -1.0)), False, id="one log disk unknown"),
        pytest.param(Round(queues=0.90), False, id="queues' disk at the limit"),
        pytest.param(Round(queues=0.91), True, id="queues' disk above the limit"),
        pytest.param(Round(queues=-1.0), False, id="queues' disk unknown"),
        pytest.param(Round(log=(0.76,), queues=0.99), False, id="queues not asked: log calls"),
        pytest.param(Round(log=(-1.0,), queues=0.99), False, id="queues not asked: log unknown"),
        pytest.param(Round(log=(0.91,), used_ratio_max=0.95), True, id="log, without a call"),
        pytest.param(
            Round(log=(0.5,), queues=0.91, used_ratio_max=0.95), True, id="queues, without a call"
        ),
    ],
)
def test_appends_are_refused_above_the_full_ratio(circumstances: Round, full: bool) -> None:
    retention = Retention(config_with(used_ratio_max=circumstances.used_ratio_max))
    decision = one_round(retention, log=circumstances.log, queues=circumstances.queues)
    assert decision.disk_full == full


def test_appends_are_taken_again_in_the_round_in_which_there_is_room() -> None:
    retention = Retention(config_with())
    states = [one_round(retention, log=ratio).disk_full for ratio in (0.5, 0.91, 0.90, 0.91, 0.5)]
    assert states == [False, True, False, True, False]


def test_a_full_disk_is_known_before_the_first_round() -> None:
    retention = Retention(config_with())
    assert retention.check_disks(log_used_ratios=[0.91], queues_used_ratio=0.5).full
    assert not retention.check_disks(log_used_ratios=[0.90], queues_used_ratio=0.5).full


def test_a_full_disk_is_full_even_where_nothing_may_be_deleted_before_its_time() -> None:
    assert one_round(Retention(config_with(clean_forcibly=False)), log=0.91).disk_full


def test_directories_above_the_clean_ratio_are_named() -> None:
    ratios = [0.86, 0.85, -1.0, 0.99]
    retention = Retention(config_with())
    assert one_round(retention, log=ratios).full_log_paths == (0, 3)
    state = retention.check_disks(log_used_ratios=ratios, queues_used_ratio=0.5)
    assert state.full_log_paths == (0, 3)


def test_a_log_has_a_directory() -> None:
    with pytest.raises(AssertionError, match="at least one directory"):
        one_round(Retention(config_with()), log=[])


# --- what the log is told -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("circumstances", "reason"),
    [
        pytest.param(Round(), "", id="nothing"),
        pytest.param(Round(hour=DELETE_HOUR), "04 is an hour of deleteWhen", id="the hour"),
        pytest.param(
            Round(log=(0.80,)), "the disk of the CommitLog is 80% used, above 75%", id="reclaim"
        ),
        pytest.param(
            Round(log=(0.88,)), "the disk of the CommitLog is 88% used, above 85%", id="clean"
        ),
        pytest.param(
            Round(queues=0.93),
            "the disk of the ConsumeQueues is 93% used, above 90%",
            id="full",
        ),
        pytest.param(
            Round(log=(-1.0,)), "the use of the disk of the CommitLog is unknown", id="unknown"
        ),
        pytest.param(
            Round(log=(0.86,), queues=0.91, used_ratio_max=0.95, hour=DELETE_HOUR),
            "04 is an hour of deleteWhen; the disk of the CommitLog is 86% used, above 85%;"
            " the disk of the ConsumeQueues is 91% used, above 90%",
            id="several",
        ),
    ],
)
def test_the_reason_names_all_that_applies(circumstances: Round, reason: str) -> None:
    retention = Retention(config_with(used_ratio_max=circumstances.used_ratio_max))
    decision = one_round(
        retention, hour=circumstances.hour, log=circumstances.log, queues=circumstances.queues
    )
    assert decision.reason == reason


def test_the_reason_counts_an_operators_rounds() -> None:
    retention = Retention(config_with())
    retention.arm_manual_deletion()
    assert one_round(retention).reason == "an operator asked for it, 19 rounds left"


# --- files that follow the log --------------------------------------------------------------


@pytest.mark.parametrize(
    ("last_offsets", "gone"),
    [
        pytest.param([], 0, id="no file"),
        pytest.param([10], 0, id="only the last"),
        pytest.param([10, 20], 1, id="never the last"),
        pytest.param([99, 500], 1, id="ends right before the log"),
        pytest.param([100, 500], 0, id="ends where the log begins"),
        pytest.param([101, 500], 0, id="ends in the log"),
        pytest.param([10, 20, 100, 30, 40], 2, id="the first that stays keeps the rest"),
        pytest.param([0, 10, 500], 2, id="filled up with entries that point at zero"),
    ],
)
def test_files_go_once_the_log_begins_after_all_they_point_at(
    last_offsets: list[int], gone: int
) -> None:
    files = [(f"file {place}", PhysicalOffset(last)) for place, last in enumerate(last_offsets)]
    behind = files_behind(PhysicalOffset(100), files, lambda file: file[1])
    assert behind == files[:gone]


def test_no_file_is_looked_at_without_need() -> None:
    asked: list[int] = []

    def last_offset(place: int) -> PhysicalOffset:
        asked.append(place)
        return PhysicalOffset(place * 50)

    assert files_behind(PhysicalOffset(100), range(10), last_offset) == [0, 1]
    assert asked == [0, 1, 2]
    asked.clear()
    assert files_behind(PhysicalOffset(10_000), range(3), last_offset) == [0, 1]
    assert asked == [0, 1]


# --- whatever the circumstances -------------------------------------------------------------

used_ratios = st.one_of(
    st.just(-1.0), st.integers(0, 100).map(lambda percent: percent / 100), st.floats(0, 1)
)
ages = st.lists(
    st.one_of(
        st.sampled_from([EXPIRED_MS, FRESH_MS, NOW_MS]),
        st.integers(EXPIRED_MS - HOUR_MS, NOW_MS + HOUR_MS),
    ),
    max_size=30,
).map(lambda modified: segments_of(*modified))
configs = st.builds(
    config_with,
    used_ratio_max=st.sampled_from([0.01, 0.10, 0.75, 0.88, 0.95, 0.99]),
    clean_forcibly=st.booleans(),
    delete_hours=st.frozensets(st.integers(0, 23)),
    delete_batch_max=st.integers(1, 12),
)
hours = st.integers(0, 23)
log_ratios = st.lists(used_ratios, min_size=1, max_size=4)


@given(
    config=configs,
    hour=hours,
    log=log_ratios,
    queues=used_ratios,
    segments=ages,
    manual=st.booleans(),
)
def test_what_goes_is_always_a_bounded_prefix_without_the_last(
    config: StoreConfig,
    hour: int,
    log: list[float],
    queues: float,
    segments: list[SegmentAge],
    manual: bool,
) -> None:
    retention = Retention(config)
    if manual:
        retention.arm_manual_deletion()
    decision = one_round(retention, hour=hour, log=log, queues=queues, segments=segments)
    gone = len(decision.delete)
    assert decision.delete == tuple(segment.first_offset for segment in segments[:gone])
    assert gone <= max(len(segments) - 1, 0)
    assert gone <= config.delete_batch_max
    if not decision.clean_immediately:
        assert all(segment.modified_ms <= EXPIRED_MS for segment in segments[:gone])


@given(
    config=configs,
    hour=hours,
    log=st.integers(0, 10).map(lambda percent: percent / 100),
    queues=st.integers(0, 10).map(lambda percent: percent / 100),
    segments=ages,
)
def test_nothing_goes_while_nothing_calls_for_it(
    config: StoreConfig, hour: int, log: float, queues: float, segments: list[SegmentAge]
) -> None:
    decision = one_round(Retention(config), hour=hour, log=log, queues=queues, segments=segments)
    if hour not in config.delete_hours:
        assert decision.delete == ()
        assert decision.reason == ""
    assert not decision.disk_full
    assert not decision.clean_immediately


@given(config=configs, hour=hours, log=log_ratios, queues=used_ratios, segments=ages)
def test_a_round_does_what_the_checks_of_rocketmq_do_one_after_another(
    config: StoreConfig, hour: int, log: list[float], queues: float, segments: list[SegmentAge]
) -> None:
    """The steps of RocketMQ 4.9.8 CleanCommitLogService, every mark it would set noted down."""
    limit = min(max(config.disk_used_ratio_max, 0.10), 0.95)
    least = min(log)
    # The check that runs on its own timer looks at the CommitLog only, and always sets the mark.
    marks = [least > 0.90]
    clean, reclaim = least > 0.85, True
    if 0 <= least <= limit:
        clean = clean or queues > 0.85
        reclaim = queues < 0 or queues > limit
        marks.append(queues > 0.90)
    expected: list[int] = []
    if reclaim or hour in config.delete_hours:
        for place in range(len(segments) - 1):
            over = NOW_MS - segments[place].modified_ms >= RESERVED_MS
            if len(expected) == config.delete_batch_max:
                break
            if not over and not (clean and config.clean_forcibly):
                break
            expected.append(place)

    decision = one_round(Retention(config), hour=hour, log=log, queues=queues, segments=segments)
    assert places(decision) == expected
    assert decision.disk_full == any(marks)
