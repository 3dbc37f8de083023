"""What a row of a table must be, worked out record by record with the readers of the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rmq.model.record import decode_record, unpack_host
from rmq.remoting.addresses import format_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from rmq.model.record import StoredRecord

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def row_of(record: StoredRecord, broker_name: str | None = None) -> dict[str, Any]:
    """Return the row of a record whose body is given as it is stored."""
    properties = record.properties
    return {
        "topic": record.topic,
        "brokerName": broker_name,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.physical_offset,
        "storeSize": record.size,
        "storeTimestamp": time_of(record.store_ms),
        "bornTimestamp": time_of(record.born_ms),
        "bornHost": format_address(unpack_host(record.born_host)),
        "storeHost": format_address(unpack_host(record.store_host)),
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bodyCrc": record.body_crc,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
        "msgId": properties.get("UNIQ_KEY") or record.message_id,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "properties": properties,
        "body": record.body,
    }


def rows_of(records: Iterable[bytes], broker_name: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of encoded records."""
    return [row_of(decode_record(record), broker_name) for record in records]


def time_of(time_ms: int) -> datetime | None:
    try:
        return EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None


def starts_of(records: Sequence[bytes]) -> NDArray[np.int64]:
    """Return where records begin when they are joined."""
    return np.cumsum([0, *map(len, records)], dtype=np.int64)[:-1]


def rows(batch: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - pyarrow has no types
    """Return the rows of a batch, its maps as dicts."""
    found: list[dict[str, Any]] = batch.to_pylist()
    for row in found:
        if row.get("properties") is not None:
            row["properties"] = as_dict(row["properties"])
    return found


def as_dict(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return a map of Arrow as a dict; no name may be there twice."""
    found = dict(pairs)
    assert len(found) == len(pairs), pairs
    return found
