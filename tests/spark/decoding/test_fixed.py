"""The numpy types of structures, against the declarations they are derived from."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings

from rmq.model import record_layout
from rmq.spark.decoding.fixed import dtype_of, structures_at
from rmq.spark.decoding.heads import HEAD_DTYPES
from tests.store.built_records import HOST_VARIANTS, build_record, drawn_records


def test_the_dtypes_have_the_sizes_of_the_declared_heads() -> None:
    assert HEAD_DTYPES.keys() == HOST_VARIANTS.keys()
    for bits, dtype in HEAD_DTYPES.items():
        assert dtype.itemsize == record_layout.RECORD_HEADS[bits].size


@given(drawn_records())
@settings(max_examples=50)
def test_a_head_reads_as_construct_reads_it(record: bytes) -> None:
    declared = record_layout.Record.parse(record)
    dtype = HEAD_DTYPES[declared.sys_flag & record_layout.HOST_FLAGS]
    (head,) = structures_at(record, np.array([0]), dtype)
    assert dtype.names is not None
    assert len(dtype.names) == 15
    for name in dtype.names:
        value = head[name]
        assert (value.tobytes() if value.dtype.kind == "V" else value) == declared[name], name


def test_structures_are_read_at_any_places() -> None:
    one, two = build_record(queue_id=1), build_record(queue_id=2)
    data = b"?" + one + b"??" + two
    heads = structures_at(data, np.array([1, 3 + len(one)]), HEAD_DTYPES[0])
    assert heads["queue_id"].tolist() == [1, 2]
    assert len(structures_at(b"", np.array([], np.int64), HEAD_DTYPES[0])) == 0


@pytest.mark.parametrize("form", ["<i", ">f", ">2i", ">ix"])
def test_other_layouts_are_refused(form: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        dtype_of(struct.Struct(form), ["a"])
