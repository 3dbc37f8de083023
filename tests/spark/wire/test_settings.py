"""Options of the source: what they mean together, and what is wrong with them."""

from __future__ import annotations

import pickle

import pytest

from rmq.errors import ConfigError
from rmq.model.queues import MessageQueue
from rmq.spark.wire.places import PlaceKind
from rmq.spark.wire.settings import SourceOptions

Q0 = MessageQueue(topic="T", broker_name="a", queue_id=0)
OFFSETS = '{"T": {"a": {"0": 5}}}'


def options(**given: str) -> SourceOptions:
    return SourceOptions({"nameservers": "127.0.0.1:9876", "subscribe": "T", **given})


def wrong(**given: str) -> str:
    """Return what is said of options."""
    wanted = {"nameservers": "127.0.0.1:9876", "subscribe": "T", **given}
    with pytest.raises(ConfigError) as caught:
        SourceOptions({key: value for key, value in wanted.items() if value})
    return str(caught.value)


def test_a_topic_is_all_that_must_be_told() -> None:
    it = options()
    assert it.choice.topics == ("T",)
    assert it.columns[0] == "topic"
    assert it.tags == "*"
    assert it.fails_on_data_loss
    assert not it.includes_system_topics
    start, end = it.for_batch()
    assert (start.kind, end.kind) == (PlaceKind.EARLIEST, PlaceKind.LATEST)
    assert it.for_stream().kind is PlaceKind.LATEST


def test_spark_writes_options_in_lower_case() -> None:
    it = SourceOptions(
        {"NameServers": "h:1", "subscribepattern": "T.*", "MAXOFFSETSPERTRIGGER": "7"}
    )
    assert it.choice.pattern == "T.*"
    assert it.offsets_per_trigger == 7


def test_options_go_to_other_processes() -> None:
    it = pickle.loads(pickle.dumps(options(columns="body,topic", tags="a||b")))
    assert it.columns == ("topic", "body")
    assert it.tags == "a||b"


def test_queues_are_chosen_in_one_of_three_ways() -> None:
    assert options(subscribe=" b, a ,b").choice.topics == ("a", "b")
    assert options(subscribe="", assign='{"T": {"a": [0]}}').choice.queues == (Q0,)
    pattern = options(subscribe="", subscribePattern="T[0-9]+").choice
    assert pattern.matches("T12")
    assert not pattern.matches("T12b")
    assert "subscribe" in (said := wrong(assign='{"T": {"a": [0]}}'))
    assert "assign" in said
    assert "subscribePattern" in (said := wrong(subscribePattern="x"))
    assert "subscribe:" in said
    assert "assign, subscribe, subscribePattern" in wrong(subscribe="")
    assert "no regular expression" in wrong(subscribe="", subscribePattern="(")
    assert "no name" in wrong(subscribe="a,,b")
    assert "characters" in wrong(subscribe="a b")
    assert "assign" in wrong(subscribe="", assign="{}")


def test_a_checkpoint_belongs_to_its_queues() -> None:
    other = MessageQueue(topic="U", broker_name="a", queue_id=1)
    for it in (
        options(),
        options(subscribe="", assign='{"T": {"a": [0]}}'),
        options(subscribe="", subscribePattern="T+"),
    ):
        it.choice.check([Q0])
        with pytest.raises(ConfigError, match=r"topic U, broker a, queue 1.*checkpointLocation"):
            it.choice.check([Q0, other])


def test_places_are_named_in_several_ways() -> None:
    start, end = options(startingOffsets=OFFSETS, endingOffsets="latest").for_batch()
    assert (start.kind, start.offsets) == (PlaceKind.OFFSETS, {Q0: 5})
    assert end.kind is PlaceKind.LATEST
    start, end = options(startingOffsets="group", endingOffsets="Group", group="g").for_batch()
    assert start.kind is end.kind is PlaceKind.GROUP
    start, end = options(startingTimestamp="5", endingTimestamp="5").for_batch()
    assert (start.time_ms, start.is_end_if_none) == (5, False)
    assert (end.time_ms, end.is_end_if_none) == (5, True)
    it = options(startingTimestamp="0", startingOffsetsByTimestampStrategy="latest")
    assert it.for_stream().is_end_if_none


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "earliest", "startingTimestamp": "5"},
         ("startingOffsets", "startingTimestamp")),
        ({"endingOffsets": "latest", "endingTimestamp": "5"}, ("endingOffsets", "endingTimestamp")),
        ({"startingTimestamp": "6", "endingTimestamp": "5"},
         ("startingTimestamp", "endingTimestamp", "6", "5")),
        ({"startingOffsets": OFFSETS, "endingOffsets": OFFSETS.replace("5", "4")},
         ("startingOffsets", "endingOffsets", "topic T")),
        ({"startingOffsets": "group"}, ("startingOffsets", "group")),
        ({"endingOffsets": "group"}, ("endingOffsets", "group")),
        ({"group": "g"}, ("group", "startingOffsets")),
        ({"endingOffsets": "earliest"}, ("endingOffsets",)),
        ({"endingOffsets": OFFSETS.replace("5", "-2")}, ("endingOffsets",)),
        ({"startingOffsets": "first"}, ("startingOffsets", "earliest")),
        ({"startingOffsets": '{"T": 5}'}, ("startingOffsets",)),
        ({"startingTimestamp": "yesterday"}, ("startingTimestamp",)),
        ({"startingOffsetsByTimestampStrategy": "last"}, ("latest",)),
        ({"tags": "||"}, ("tags",)),
        ({"columns": "bodi"}, ("columns", "body")),
        ({"consumerGroup": "a b"}, ("consumerGroup",)),
        ({"nameservers": " ; "}, ("nameservers",)),
        ({"nameservers": ""}, ("nameservers",)),
        ({"nameservers": "somewhere"}, ("somewhere",)),
        ({"topic": "T"}, ("topic", "is not a known")),
        ({"failOnDataloss ": "no"}, ("failOnDataLoss",)),
        ({"failOnDataLoss": "no"}, ("failOnDataLoss", "true")),
        ({"maxOffsetsPerTrigger": "-1"}, ("maxOffsetsPerTrigger",)),
        ({"pullBatchSize": "0"}, ("pullBatchSize",)),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_told(given: dict[str, str], words: tuple[str, ...]) -> None:
    said = wrong(**given)
    assert all(word in said for word in words), said


def test_all_that_is_wrong_is_told_at_once() -> None:
    said = wrong(tags="||", columns="bodi", startingTimestamp="x", subscribr="T")
    for word in ("tags", "body", "startingTimestamp", "did you mean subscribe?"):
        assert word in said


def test_a_stream_has_no_end_and_a_batch_no_triggers() -> None:
    for given in ({"endingOffsets": "latest"}, {"endingTimestamp": "5"}):
        with pytest.raises(ConfigError, match="is for batches"):
            options(**given).for_stream()
    for given in ({"maxOffsetsPerTrigger": "5"}, {"commitGroup": "g"}):
        with pytest.raises(ConfigError, match="is for streams"):
            options(**given).for_batch()
    with pytest.raises(ConfigError, match="reads nothing"):
        options(startingOffsets="latest").for_batch()


def test_secrets_are_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    said = wrong(secretKey="hunter2")
    assert "secretKeyFile" in said
    assert "hunter2" not in said
    monkeypatch.setenv("RMQ_SECRET_KEY", "hunter2")
    it = options(accessKey="me")
    for shown in (repr(it), repr(it.values), str(vars(it)), repr(pickle.dumps(it))):
        assert "hunter2" not in shown
