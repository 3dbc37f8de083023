"""The limit of messages per second, by a clock of the test's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import ConfigError
from rmq.spark.sink.rate import BURST_S, TokenBucket, parallel_tasks


def test_the_first_messages_go_at_once_and_others_when_these_are_paid_for() -> None:
    bucket = TokenBucket(100, 5.0)
    assert bucket.wait_s(5.0) == 0
    bucket.take(50, 5.0)
    assert bucket.wait_s(5.0) == pytest.approx(0.5)
    assert bucket.wait_s(5.4) == pytest.approx(0.1)
    assert bucket.wait_s(5.5) == pytest.approx(0)


def test_time_that_was_not_used_counts_for_a_moment_only() -> None:
    bucket = TokenBucket(100, 0.0)
    assert bucket.wait_s(1000.0) == 0
    bucket.take(int(100 * BURST_S) + 20, 1000.0)
    assert bucket.wait_s(1000.0) == pytest.approx(0.2)


@given(
    st.floats(0.5, 1e6),
    st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 2)), min_size=1, max_size=50),
)
def test_no_stretch_of_time_has_more_than_its_share(
    per_second: float, work: list[tuple[int, float]]
) -> None:
    bucket = TokenBucket(per_second, 0.0)
    now = 0.0
    sent: list[tuple[float, int]] = []
    for count, idle_s in work:
        now += idle_s
        now += bucket.wait_s(now)
        bucket.take(count, now)
        sent.append((now, count))
    for first, (start, _) in enumerate(sent):
        total = 0
        for at, count in sent[first:]:
            # What one call sends may exceed what there is, once.
            allowed = per_second * (at - start + BURST_S)
            assert total <= allowed * (1 + 1e-9) + 1e-6
            total += count


def count(**settings: str) -> int:
    named = {f"spark.{key.replace('_', '.')}": value for key, value in settings.items()}
    return parallel_tasks(0, named.get, cores=6)


def test_tasks_at_the_same_time_are_what_the_settings_of_spark_allow() -> None:
    assert count(master="local") == 1
    assert count(master="local[2]") == 2
    assert count(master="local[3, 4]") == 3
    assert count(master="local[*]") == count(master="local[*,4]") == 6
    assert count(master="local-cluster[2, 3, 1024]") == 6
    assert count(master="yarn", executor_instances="5", executor_cores="4") == 20
    assert count(master="yarn", executor_instances="5", executor_cores="4", task_cpus="3") == 5
    assert count(master="spark://host:7077", cores_max="12", task_cpus="2") == 6
    dynamic = {"dynamicAllocation_enabled": "true", "dynamicAllocation_maxExecutors": "10"}
    assert count(master="k8s://host", executor_cores="2", **dynamic) == 20
    assert parallel_tasks(7, {"spark.master": "local[2]"}.get, cores=6) == 7


@pytest.mark.parametrize(
    "settings",
    [
        {"master": "spark://host:7077"},
        {"master": "yarn", "executor_cores": "4"},
        {
            "master": "yarn",
            "executor_cores": "4",
            "executor_instances": "2",
            "dynamicAllocation_enabled": "true",
        },
    ],
)
def test_where_they_do_not_tell_the_option_has_to(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="do not tell how many tasks") as caught:
        count(**settings)
    assert "parallelTasks" in (caught.value.hint or "")
