"""Which tables can be written, and what is said of those that cannot."""

from __future__ import annotations

import pytest

from rmq.spark.schema import COLUMNS
from rmq.spark.sink.columns import METADATA, TYPES, ChosenColumn, SchemaError, choose_columns


def choose(
    *fields: tuple[str, str], has_topic: bool = True, ignores_extra: bool = False
) -> dict[str, ChosenColumn]:
    return choose_columns(fields, has_topic=has_topic, ignores_extra=ignores_extra)


def test_columns_are_found_by_name_in_any_case_and_order() -> None:
    chosen = choose(("DELAYLEVEL", "int"), ("Body", "string"), ("shardingkey", "string"))
    assert chosen == {
        "delayLevel": ChosenColumn(0, "int"),
        "body": ChosenColumn(1, "string"),
        "shardingKey": ChosenColumn(2, "string"),
    }
    for spark_type in TYPES["keys"]:
        assert choose(("body", "binary"), ("keys", spark_type))["keys"].spark_type == spark_type


def test_a_table_of_our_own_sources_can_be_written() -> None:
    fields = [(column.name, column.spark_type.lower()) for column in COLUMNS.values()]
    chosen = choose_columns(fields, has_topic=False, ignores_extra=False)
    assert set(chosen) == {"topic", "body", "tags", "keys", "properties", "flag"}
    assert {"queueId", "queueOffset", "storeTimestamp", "msgId", "sysFlag"} <= METADATA


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(SchemaError) as caught:
        choose(
            ("Bodi", "binary"),
            ("tags", "array<string>"),
            ("keys", "bigint"),
            ("KEYS", "string"),
            ("properties", "map<string,int>"),
            ("weight", "double"),
            ("delayLevel", "bigint"),
            has_topic=False,
        )
    assert len(caught.value.problems) == 9
    text = str(caught.value)
    for part in (
        "column Bodi (BINARY) is not known: did you mean body?",
        "column tags is ARRAY<STRING>, not STRING",
        "column keys is BIGINT, not STRING or ARRAY<STRING>",
        "column keys is there twice",
        "column properties is MAP<STRING,INT>, not MAP<STRING,STRING>",
        "column weight (DOUBLE) is not known: drop it (ignoreExtraColumns=true",
        "column delayLevel is BIGINT, not INT",
        "there is no column body",
        "neither a column topic (STRING) nor the option topic",
    ):
        assert part in text


def test_columns_that_are_not_known_can_be_left_out() -> None:
    assert set(choose(("body", "binary"), ("weight", "double"), ignores_extra=True)) == {"body"}
