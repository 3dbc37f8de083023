"""The columns of a table: which there are, and how they are chosen."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from rmq.errors import ConfigError
from rmq.spark.schema import COLUMNS, arrow_schema, chosen_columns, spark_schema


def test_all_columns_but_the_map_can_be_had_without_naming_them() -> None:
    everything = chosen_columns("", include_properties=True)
    assert everything == tuple(COLUMNS)
    assert set(everything) - set(chosen_columns(" ", include_properties=False)) == {"properties"}


def test_columns_are_in_the_order_of_the_table_however_they_are_written() -> None:
    assert chosen_columns("BODY, topic,queueid,topic", include_properties=False) == (
        "topic",
        "queueId",
        "body",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("topic,bdy", "columns: 'bdy' is not a column; did you mean body?"),
        ("xyz", "'xyz' is not a column; there are topic, brokerName"),
        ("topic,", "'' is not a column"),
    ],
)
def test_a_name_that_is_no_column_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        chosen_columns(text, include_properties=True)
    assert says in str(refused.value)


def test_spark_and_arrow_agree_on_every_type() -> None:
    # Parsing the text takes a session; the types that Spark makes of Arrow's do not.
    declared = {
        "STRING": "string",
        "INT": "int",
        "BIGINT": "bigint",
        "TIMESTAMP": "timestamp",
        "MAP<STRING,STRING>": "map<string,string>",
        "BINARY": "binary",
    }
    spark = from_arrow_schema(arrow_schema(tuple(COLUMNS)))
    assert [(field.name, field.dataType.simpleString()) for field in spark.fields] == [
        (column.name, declared[column.spark_type]) for column in COLUMNS.values()
    ]
    assert all(field.nullable for field in spark.fields)
    assert to_arrow_schema(spark, timezone="UTC").names == list(COLUMNS)
    assert spark_schema(("topic", "queueId")) == "topic STRING, queueId INT"
