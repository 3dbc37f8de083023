"""Settings of consumers, and what listeners may return."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from rmq.client.core.consuming.allocation import Average, ConsistentHash
from rmq.client.core.consuming.config import (
    ConsumeFrom,
    LitePullConfig,
    MessageModel,
    PushConsumerConfig,
    default_offset_folder,
)
from rmq.client.core.consuming.results import (
    FAILED,
    SUCCESS,
    ConsumeResult,
    Later,
    Outcome,
    understood,
)
from rmq.errors import ConfigError, IllegalMessageError


def test_defaults_are_those_of_4_9_8() -> None:
    config = PushConsumerConfig(group="g")
    assert config.message_model is MessageModel.CLUSTERING
    assert config.consume_from is ConsumeFrom.LAST
    assert config.strategy == Average()
    assert (config.pull_messages_max, config.batch_messages_max) == (32, 1)
    assert (config.queue_messages_max, config.queue_span_max) == (1000, 2000)
    assert config.queue_bytes_max == 100 * 1024 * 1024
    assert config.listeners_max == 20
    assert config.consume_timeout_s == 900
    assert (config.pull_suspend_s, config.pull_timeout_s) == (15, 30)
    assert (config.rebalance_s, config.offset_commit_s, config.lock_renewal_s) == (20, 5, 20)
    assert (config.suspend_queue_s, config.pull_pause_s, config.pull_interval_s) == (1, 1, 0)
    assert not config.is_broadcast
    lite = LitePullConfig(group="g")
    assert (lite.pull_messages_max, lite.messages_max) == (10, 10_000)
    assert (lite.commits_itself, lite.commit_interval_s, lite.poll_timeout_s) == (True, 5, 5)
    assert (lite.pull_suspend_s, lite.pull_timeout_s) == (20, 30)
    assert lite.consume_from is ConsumeFrom.LAST
    assert default_offset_folder() == Path.home() / ".rocketmq_offsets"


def test_how_often_a_message_is_retried() -> None:
    assert PushConsumerConfig(group="g").retries_max == 16
    assert PushConsumerConfig(group="g", is_orderly=True).retries_max is None
    assert PushConsumerConfig(group="g", is_orderly=True, reconsume_times_max=3).retries_max == 3
    assert PushConsumerConfig(group="g", reconsume_times_max=0).retries_max == 0


@pytest.mark.parametrize("kind", [PushConsumerConfig, LitePullConfig])
def test_a_start_by_time_without_a_time_is_half_an_hour_ago(
    kind: type[PushConsumerConfig] | type[LitePullConfig],
) -> None:
    assert kind(group="g").start_ms(2_000_000) == 200_000
    assert kind(group="g", consume_from_ms=5).start_ms(2_000_000) == 5


def test_limits_of_a_topic_are_shared_by_its_queues() -> None:
    config = PushConsumerConfig(group="g")
    assert config.queue_limits(7) == (1000, 100 * 1024 * 1024)
    config = PushConsumerConfig(group="g", topic_messages_max=10, topic_bytes_max=1000)
    assert config.queue_limits(4) == (2, 250)
    assert config.queue_limits(0) == (10, 1000)
    assert config.queue_limits(5000) == (1, 1)


@pytest.mark.parametrize("kind", [PushConsumerConfig, LitePullConfig])
def test_settings_are_values(kind: type[PushConsumerConfig] | type[LitePullConfig]) -> None:
    config = kind(
        group="g",
        message_model=MessageModel.BROADCASTING,
        strategy=ConsistentHash(),
        offset_folder=Path("offsets"),
    )
    assert config.is_broadcast
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(AttributeError):
        config.group = "h"  # type: ignore[misc]


def test_a_folder_may_be_given_as_text() -> None:
    folder: Any = "offsets"
    assert PushConsumerConfig(group="g", offset_folder=folder).offset_folder == Path("offsets")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("listeners_max", 0),
        ("listeners_max", 1001),
        ("batch_messages_max", 0),
        ("batch_messages_max", 1025),
        ("pull_messages_max", 1025),
        ("pull_interval_s", -1),
        ("queue_messages_max", 0),
        ("queue_messages_max", 65_536),
        ("queue_bytes_max", 0),
        ("queue_span_max", 0),
        ("topic_messages_max", 0),
        ("topic_bytes_max", 0),
        ("reconsume_times_max", -1),
        ("suspend_queue_s", 0),
        ("suspend_queue_s", 31),
        ("consume_timeout_s", 0),
        ("pull_pause_s", 0),
        ("rebalance_s", 0),
        ("offset_commit_s", -1),
        ("lock_renewal_s", 0),
        ("close_wait_s", -1),
        ("pull_timeout_s", 15),
        ("pull_suspend_s", 0),
        ("pull_suspend_s", float("nan")),
        ("consume_from_ms", -1),
        ("consume_from", "first"),
        ("message_model", "CLUSTERING"),
        ("strategy", "AVG"),
    ],
)
def test_settings_out_of_bounds_are_named(setting: str, value: object) -> None:
    options: dict[str, Any] = {setting: value}
    with pytest.raises(ConfigError) as caught:
        PushConsumerConfig(group="g", **options)
    assert caught.value.key in (setting, "pull_timeout_s")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("commit_interval_s", 0.9),
        ("poll_timeout_s", -1),
        ("pull_messages_max", 0),
        ("messages_max", 0),
        ("queue_messages_max", 0),
        ("queue_bytes_max", 0),
        ("queue_span_max", 0),
        ("pull_timeout_s", 19),
        ("rebalance_s", 0),
        ("consume_from", None),
        ("message_model", None),
    ],
)
def test_settings_of_lite_pull_out_of_bounds_are_named(setting: str, value: object) -> None:
    options: dict[str, Any] = {setting: value}
    with pytest.raises(ConfigError) as caught:
        LitePullConfig(group="g", **options)
    assert caught.value.key == setting


@pytest.mark.parametrize("group", ["", "DEFAULT_CONSUMER", "a b", "x" * 256])
def test_a_group_that_cannot_be_is_refused(group: str) -> None:
    for kind in (PushConsumerConfig, LitePullConfig):
        with pytest.raises(IllegalMessageError):
            kind(group=group)


# --- what listeners return -------------------------------------------------------------------


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("returned", "outcome"),
    [
        (None, SUCCESS),
        (ConsumeResult.SUCCESS, SUCCESS),
        (ConsumeResult.LATER, FAILED),
        (Later(), FAILED),
        (Later(5), Outcome(is_success=False, delay_level=5)),
        (Later(-1), Outcome(is_success=False, delay_level=-1)),
        (True, Outcome(is_success=False, nonsense="bool True")),
        (False, Outcome(is_success=False, nonsense="bool False")),
        ("success", Outcome(is_success=False, nonsense="str 'success'")),
        (0, Outcome(is_success=False, nonsense="int 0")),
        (ConsumeResult, Outcome(is_success=False, nonsense="EnumType <enum 'ConsumeResult'>")),
        (
            Unshowable(),
            Outcome(is_success=False, nonsense="Unshowable one that cannot be shown: ValueError"),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_listener_returns_is_understood(returned: object, outcome: Outcome) -> None:
    assert understood(returned) == outcome


def test_long_nonsense_is_cut() -> None:
    nonsense = understood("x" * 10_000).nonsense
    assert nonsense is not None
    assert len(nonsense) < 300


@pytest.mark.parametrize("level", [-2, 19])
def test_a_level_that_is_none_is_refused(level: int) -> None:
    with pytest.raises(ConfigError, match="delay_level"):
        Later(level)
