"""The options of a write."""

from __future__ import annotations

import pickle

import pytest

from rmq.client.core.messages import SendStatus
from rmq.errors import ConfigError
from rmq.spark.sink.settings import BATCH_OPTIONS, STREAM_OPTIONS, read_settings

NAMESERVERS = {"nameservers": "host:9876"}


def test_names_come_in_any_case_and_values_are_typed() -> None:
    settings = read_settings(
        BATCH_OPTIONS, {**NAMESERVERS, "TOPIC": "Orders", "acceptstatus": "stored", "runId": "r-1"}
    )
    assert settings.topic == "Orders"
    assert settings.accepted == frozenset(SendStatus)
    assert settings.values.text("runId") == "r-1"
    assert pickle.loads(pickle.dumps(settings)).values == settings.values


def test_defaults_wait_for_every_message_to_be_safe() -> None:
    settings = read_settings(STREAM_OPTIONS, {**NAMESERVERS, "checkpointLocation": "/somewhere"})
    assert settings.topic is None
    assert settings.accepted == {SendStatus.OK}
    producer = settings.producer()
    assert (producer.group, producer.send_timeout_s, producer.retries) == ("rmq-spark-sink", 10, 2)
    client = settings.client()
    assert client.addresses == ("host:9876",)
    # Who looks for answers all the time takes a core from Spark.
    assert client.busy_wait_s == 0
    assert settings.values.integer("brokerTimeoutMs") == 60_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "nameservers"),
        ({**NAMESERVERS, "topci": "T"}, "did you mean topic"),
        ({**NAMESERVERS, "topic": "a b"}, "topic 'a b' has characters"),
        ({**NAMESERVERS, "topic": "SCHEDULE_TOPIC_XXXX"}, "brokers only"),
        ({**NAMESERVERS, "producerGroup": "DEFAULT_PRODUCER"}, "producerGroup"),
        ({**NAMESERVERS, "runId": "a b"}, "without blanks"),
        ({**NAMESERVERS, "runId": "a" * 129}, "runId"),
        ({**NAMESERVERS, "acceptStatus": "any"}, "acceptStatus"),
        ({**NAMESERVERS, "batchBytes": str(5 * 1024**2)}, "batchBytes"),
        ({**NAMESERVERS, "batchMessages": "0"}, "batchMessages"),
        ({**NAMESERVERS, "maxMessagesPerSecond": "-1"}, "maxMessagesPerSecond"),
        ({**NAMESERVERS, "secretKey": "x"}, "secretKeyFile"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(BATCH_OPTIONS, options)
    assert said in str(caught.value)


def test_a_stream_has_no_run_of_its_own() -> None:
    with pytest.raises(ConfigError, match="runId"):
        read_settings(STREAM_OPTIONS, {**NAMESERVERS, "runId": "r"})


def test_the_machine_that_plans_needs_no_secret() -> None:
    options = {**NAMESERVERS, "accessKey": "me", "secretKeyFile": "/not/here"}
    settings = read_settings(BATCH_OPTIONS, options)
    with pytest.raises(ConfigError, match="/not/here"):
        settings.client()
