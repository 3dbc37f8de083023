"""Texts that must be read leniently are bounded; plain ones are not."""

from __future__ import annotations

import pytest

from rmq.remoting.bodies import BodyError, KVTable, TopicStatsTable
from rmq.remoting.bodies.base import LENIENT_BYTES_MAX

PADDING = b"x" * LENIENT_BYTES_MAX


def test_a_long_body_of_plain_json_is_read() -> None:
    assert KVTable.decode(b'{"table":{"k":"%b"}}' % PADDING).table["k"] == PADDING.decode()


def test_a_long_body_that_is_almost_json_is_refused_unless_the_peer_is_trusted() -> None:
    body = b'{"table":{"k":"%b"},}' % PADDING
    with pytest.raises(BodyError, match="bytes that are not plain"):
        KVTable.decode(body)
    trusted = KVTable.decode(body, lenient_bytes_max=2 * LENIENT_BYTES_MAX)
    assert trusted.table["k"] == PADDING.decode()


def test_tables_by_queue_are_never_plain_and_have_no_such_bound() -> None:
    queue = b'{"brokerName":"%b","queueId":0,"topic":"T"}' % PADDING
    body = b'{"offsetTable":{%b:{"lastUpdateTimestamp":1,"maxOffset":2,"minOffset":0}}}' % queue
    assert len(TopicStatsTable.decode(body).offset_table) == 1
