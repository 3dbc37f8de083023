"""The options of the format `rocketmq-store`, checked and typed. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.errors import ConfigError
from rmq.settings.schema import INT_MAX, LONG_MAX, Rule, Schema, Setting
from rmq.spark.options import COLUMN_SETTINGS, read_options
from rmq.spark.schema import chosen_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.settings.schema import Values

SPLIT_BYTES: Final = 64 * 1024**2
_NOT_SET: Final = -1
_FILE_SCHEME: Final = "file:"


def _optional(key: str, help_text: str) -> Setting:
    return Setting(
        key=key,
        default=_NOT_SET,
        default_text="not set",
        minimum=_NOT_SET,
        maximum=LONG_MAX,
        help=help_text,
    )


STORE_SETTINGS: Final = (
    Setting(
        key="path",
        default=None,
        help="the directory of the store (storePathRootDir), the same on every machine that reads",
    ),
    Setting(
        key="commitLogPaths",
        default=None,
        default_text="`commitlog` in `path`",
        help="the directories of the CommitLog (storePathCommitLog), joined by commas",
    ),
    Setting(
        key="brokerName",
        default=None,
        help="what the column `brokerName` says; a store does not know the name of its broker",
    ),
    Setting(
        key="topics",
        default="",
        help="topics to read, joined by commas; all but those of `includeSystemTopics` if empty",
    ),
    Setting(
        key="includeSystemTopics",
        default=False,
        help=(
            "whether topics of brokers and consumer groups are read, too: SCHEDULE_TOPIC_XXXX and"
            " other system topics, `%RETRY%` and `%DLQ%`; topics that are named are always read"
        ),
    ),
    _optional("fromOffset", "physical offset to start with, which must be where a record begins"),
    _optional("toOffset", "physical offset to end at; a record that goes beyond it is left out"),
    _optional(
        "startingTimestamp", "messages stored at this time or later are read, in ms since 1970"
    ),
    _optional("endingTimestamp", "messages stored before this time are read, in ms since 1970"),
    *COLUMN_SETTINGS,
    Setting(
        key="splitBytes",
        default=SPLIT_BYTES,
        maximum=INT_MAX,
        help="how much of a segment one task reads, about; 0 gives each segment to one task",
    ),
    Setting(
        key="skipCorrupt",
        default=False,
        help=(
            "whether damage to the log is skipped: every stretch is logged, and reading goes"
            " on with the next sound record; otherwise damage is an error"
        ),
    ),
    Setting(
        key="failOnDataLoss",
        default=True,
        help=(
            "whether it is an error that retention deleted a segment before it was read, or that"
            " `fromOffset` lies before the log; otherwise what is missing is logged"
        ),
    ),
)


def _rising(first: str, last: str) -> Rule:
    def check(values: Values) -> str | None:
        low, high = values.integer(first), values.integer(last)
        if _NOT_SET in (low, high) or low <= high:
            return None
        return f"{low} is behind {last}, {high}"

    return Rule(keys=(first, last), check=check)


SCHEMA: Final = Schema(
    STORE_SETTINGS,
    rules=(_rising("fromOffset", "toOffset"), _rising("startingTimestamp", "endingTimestamp")),
)


class StoreOptions(NamedTuple):
    """The options of a query over a store. It is pickled into every task."""

    root: Path
    log_paths: tuple[Path, ...]
    broker_name: str | None
    topics: frozenset[str]
    """Empty: all, see `includes_system_topics`."""
    includes_system_topics: bool
    from_offset: int | None
    to_offset: int | None
    from_ms: int | None
    to_ms: int | None
    columns: tuple[str, ...]
    decompress: bool
    verify_crc: bool
    batch_rows: int
    split_bytes: int
    skips_corrupt: bool
    fails_on_data_loss: bool


def store_options(options: Mapping[str, str]) -> StoreOptions:
    """Return the options of a query; raise `ConfigError` that names everything wrong."""
    values = read_options(SCHEMA, options)
    root = _local_path("path", values.text("path"))
    named = values.text("commitLogPaths")
    log_paths = tuple(_local_path("commitLogPaths", word) for word in _words(named))
    return StoreOptions(
        root=root,
        log_paths=log_paths or (root / "commitlog",),
        broker_name=values.text("brokerName") or None,
        topics=frozenset(_words(values.text("topics"))),
        includes_system_topics=values.flag("includeSystemTopics"),
        from_offset=_integer(values, "fromOffset"),
        to_offset=_integer(values, "toOffset"),
        from_ms=_integer(values, "startingTimestamp"),
        to_ms=_integer(values, "endingTimestamp"),
        columns=chosen_columns(
            values.text("columns"), include_properties=values.flag("includeProperties")
        ),
        decompress=values.flag("decompress"),
        verify_crc=values.flag("verifyCrc"),
        batch_rows=values.integer("batchRows"),
        split_bytes=values.integer("splitBytes"),
        skips_corrupt=values.flag("skipCorrupt"),
        fails_on_data_loss=values.flag("failOnDataLoss"),
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _integer(values: Values, key: str) -> int | None:
    value = values.integer(key)
    return None if value == _NOT_SET else value


def _local_path(key: str, text: str) -> Path:
    """Return a path of the file system, given as such or as a URL."""
    path = text
    if path.startswith(_FILE_SCHEME):
        path = "/" + path.removeprefix(_FILE_SCHEME).lstrip("/")
    elif "://" in path:
        raise ConfigError(
            key,
            f"{text} is not on a file system: mount it, or copy the store to where every machine"
            " finds it under the same path",
        )
    if not path:
        raise ConfigError(key, "is not set", hint="give the directory of a store: load(path)")
    return Path(path)
