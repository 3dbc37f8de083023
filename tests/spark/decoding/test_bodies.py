"""Compressed bodies in all three ways, and what cannot be decompressed."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rmq.model.compression import DecompressError
from rmq.spark.decoding.bodies import BodiesTooLongError, plain_body
from rmq.spark.decoding.heads import UnsoundRecordError
from rmq.spark.decoding.records import RecordDecoder
from tests.spark.decoding.oracle import starts_of
from tests.store.built_records import build_record

PLAIN = b"all work and no play " * 400
ZLIB, LZ4, ZSTD, OLD_ZLIB = 0x301, 0x101, 0x201, 0x001


def compressed(kind: int, body: bytes = PLAIN) -> bytes:
    if kind in (ZLIB, OLD_ZLIB):
        return zlib.compress(body, 5)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4" if kind == LZ4 else "zstd") as stream:
        stream.write(body)
    return bytes(sink.getvalue())


def decoder(**options: Any) -> RecordDecoder:  # noqa: ANN401
    defaults: dict[str, Any] = {"decompress": True, "verify_crc": True, "broker_name": None}
    return RecordDecoder(("body",), **(defaults | options))


def body_column(*records: bytes, **options: Any) -> list[bytes]:  # noqa: ANN401
    batch = decoder(**options).decode(b"".join(records), starts_of(records))
    batch.validate(full=True)
    found: list[bytes] = batch.column("body").to_pylist()
    return found


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD, OLD_ZLIB])
def test_compressed_bodies_are_given_as_they_were_sent(kind: int) -> None:
    stored = compressed(kind)
    record = build_record(body=stored, sys_flag=kind)
    # The bits for the kind mean nothing as long as the one for compressed is not set.
    plain = build_record(body=b"plain", sys_flag=kind & ~1)
    assert body_column(record) == [PLAIN]
    assert body_column(plain, record, plain, record) == [b"plain", PLAIN, b"plain", PLAIN]
    assert body_column(plain, record, decompress=False) == [b"plain", stored]


def test_frames_as_the_java_compressors_write_them() -> None:
    # LZ4FrameOutputStream: blocks of 4 MB, independent, no size; here one stored block.
    lz4 = bytes.fromhex("04224d18 60 70 73 05000080 68656c6c6f 00000000")
    assert plain_body(lz4, LZ4) == b"hello"
    # ZstdOutputStream: no size in the frame; here one raw block.
    zstd = bytes.fromhex("28b52ffd 00 58 290000 68656c6c6f")
    assert plain_body(zstd, ZSTD) == b"hello"


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD, OLD_ZLIB])
def test_what_is_not_compressed_in_that_way_is_named(kind: int) -> None:
    sound = compressed(kind)
    for damaged in (b"nonsense", sound[: len(sound) // 2], b"\0" + sound):
        bad = build_record(body=damaged, sys_flag=kind, physical_offset=99)
        with pytest.raises(
            UnsoundRecordError,
            match=r"record 1, physical offset 99: the compressed body cannot be read: .*"
            r"decompress=false",
        ):
            body_column(build_record(), bad)
        assert body_column(bad, decompress=False) == [damaged]


def test_an_unknown_kind_is_named() -> None:
    bad = build_record(sys_flag=0x701)
    with pytest.raises(UnsoundRecordError, match="in a way that is not known"):
        body_column(bad)


@pytest.mark.parametrize("kind", [ZLIB, LZ4, ZSTD])
def test_a_body_that_grows_beyond_the_bound_is_refused(kind: int) -> None:
    stored = compressed(kind)
    assert plain_body(stored, kind, len(PLAIN)) == PLAIN
    with pytest.raises(DecompressError, match="more than 8399 bytes"):
        plain_body(stored, kind, len(PLAIN) - 1)


def test_long_bodies_make_several_batches() -> None:
    record = build_record(body=compressed(ZLIB), sys_flag=ZLIB)
    plain = build_record(body=b"plain")
    records = [record] * 5 + [plain, plain] + [record] * 3
    data, starts = b"".join(records), starts_of(records)
    several = decoder(plain_bytes_max=3 * len(PLAIN))
    found = [batch.column("body").to_pylist() for batch in several.batches(data, starts)]
    assert [len(each) for each in found] == [3, 4, 3]
    sent = [PLAIN] * 5 + [b"plain"] * 2 + [PLAIN] * 3
    assert [body for each in found for body in each] == sent
    with pytest.raises(BodiesTooLongError, match="of 3 records"):
        several.decode(data, starts)
    # One body is a batch, however long it is.
    single = decoder(plain_bytes_max=1)
    assert [batch.num_rows for batch in single.batches(record * 2, starts[:2])] == [1, 1]
    assert list(single.batches(b"", np.array([], np.int64))) == []
