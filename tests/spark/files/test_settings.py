"""Options of the format `rocketmq-store`."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from rmq.errors import ConfigError
from rmq.settings.schema import SettingsError
from rmq.spark.files.settings import SPLIT_BYTES, store_options
from rmq.spark.schema import COLUMNS


def test_defaults_read_everything_but_system_topics() -> None:
    options = store_options({"path": "/data/store"})
    assert options.root == Path("/data/store")
    assert options.log_paths == (Path("/data/store/commitlog"),)
    assert options.columns == tuple(COLUMNS)
    assert (options.topics, options.includes_system_topics) == (frozenset(), False)
    assert (options.from_offset, options.to_offset) == (None, None)
    assert (options.from_ms, options.to_ms) == (None, None)
    assert (options.decompress, options.verify_crc) == (True, True)
    assert (options.batch_rows, options.split_bytes) == (20_000, SPLIT_BYTES)
    assert (options.skips_corrupt, options.fails_on_data_loss) == (False, True)
    assert pickle.loads(pickle.dumps(options)) == options


def test_all_options_in_any_case() -> None:
    options = store_options(
        {
            "PATH": "file:///data/store",
            "commitlogpaths": "/a, file:/b,",
            "brokername": "broker-a",
            "topics": "Orders, %DLQ%g,",
            "fromoffset": "0",
            "tooffset": "99",
            "startingtimestamp": "5",
            "endingtimestamp": "6",
            "columns": "body,topic",
            "splitbytes": "0",
            "skipcorrupt": "true",
            "failondataloss": "false",
        }
    )
    assert options.root == Path("/data/store")
    assert options.log_paths == (Path("/a"), Path("/b"))
    assert options.broker_name == "broker-a"
    assert options.topics == {"Orders", "%DLQ%g"}
    assert (options.from_offset, options.to_offset) == (0, 99)
    assert (options.from_ms, options.to_ms) == (5, 6)
    assert options.columns == ("topic", "body")
    assert options.split_bytes == 0
    assert (options.skips_corrupt, options.fails_on_data_loss) == (True, False)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "path: is not set"),
        ({"path": "hdfs://nn/store"}, "hdfs://nn/store is not on a file system"),
        ({"path": "/s", "topic": "T"}, "did you mean topics?"),
        ({"path": "/s", "startOffset": "1"}, "startOffset"),
        ({"path": "/s", "fromOffset": "9", "toOffset": "8"}, "9 is behind toOffset, 8"),
        ({"path": "/s", "startingTimestamp": "9", "endingTimestamp": "8"}, "endingTimestamp, 8"),
        ({"path": "/s", "fromOffset": "-2"}, "fromOffset"),
        ({"path": "/s", "splitBytes": "64M"}, "splitBytes"),
        ({"path": "/s", "columns": "bdy"}, "did you mean body?"),
        ({"path": "/s", "skipCorrupt": "yes"}, "skipCorrupt"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], text: str) -> None:
    with pytest.raises((ConfigError, SettingsError)) as caught:
        store_options(options)
    assert text in str(caught.value)
