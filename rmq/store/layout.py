"""Byte layouts of the store's files, declared with construct.

Everything is big-endian. This is the reference: tests, docs and tools parse with it, and the hot
path uses `struct.Struct` objects that `rmq.packing` derives from it. The formats are those of
RocketMQ 4.9.8, except `RecoveryPoint`, which is ours and which a stock broker never looks at. The
records of the CommitLog are declared in `rmq.model.record_layout`.

    QueueEntry      one message in a ConsumeQueue
    IndexHeader     the start of an IndexFile, followed by slots (i32) and entries
    IndexEntry      one key of one message, linked to the previous one of its slot
    Checkpoint      three store times, from which a stock recovery decides where to begin
    RecoveryPoint   the offset below which all is on disk: our recovery begins there
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from construct import (
    Bytes,
    Const,
    Int8sb,
    Int32sb,
    Int32ub,
    Int64sb,
    Padding,
    Struct,
)

from rmq.packing import struct_of

if TYPE_CHECKING:
    from collections.abc import Callable

    _Length = int | Callable[[Any], int]

QueueEntry = Struct("physical_offset" / Int64sb, "size" / Int32sb, "tags_code" / Int64sb)
QUEUE_ENTRY: Final = struct_of(QueueEntry)
QUEUE_ENTRY_BYTES: Final = QueueEntry.sizeof()

FILLER_SIZE: Final = 0x7FFFFFFF
"""The size of an entry that stands for nothing: a queue that begins inside a file has these before
its first message.
"""

IndexHeader = Struct(
    "begin_ms" / Int64sb,
    "end_ms" / Int64sb,
    "begin_offset" / Int64sb,
    "end_offset" / Int64sb,
    "slots_used" / Int32sb,
    "entry_count" / Int32sb,
)
INDEX_HEADER: Final = struct_of(IndexHeader)
INDEX_HEADER_BYTES: Final = IndexHeader.sizeof()

IndexSlot = Struct("entry" / Int32sb)
INDEX_SLOT: Final = struct_of(IndexSlot)
INDEX_SLOT_BYTES: Final = IndexSlot.sizeof()
INDEX_SECONDS_MAX: Final = 0x7FFFFFFF
"""The time of an entry, in seconds after its file began, goes no further."""

IndexEntry = Struct(
    "key_hash" / Int32sb,
    "physical_offset" / Int64sb,
    "seconds" / Int32sb,
    "previous" / Int32sb,
)
INDEX_ENTRY: Final = struct_of(IndexEntry)
INDEX_ENTRY_BYTES: Final = IndexEntry.sizeof()

CHECKPOINT_BYTES: Final = 4096
CheckpointTimes = Struct("physical_ms" / Int64sb, "queues_ms" / Int64sb, "index_ms" / Int64sb)
Checkpoint = Struct(
    *CheckpointTimes.subcons,
    Padding(CHECKPOINT_BYTES - CheckpointTimes.sizeof()),
)
CHECKPOINT_TIMES: Final = struct_of(CheckpointTimes)

RECOVERY_POINT_MAGIC: Final = b"rmqpoint"
RECOVERY_POINT_SLOT_BYTES: Final = 512
RecoveryPoint = Struct(
    "magic" / Const(RECOVERY_POINT_MAGIC),
    "sequence" / Int64sb,
    "physical_offset" / Int64sb,
    "queue_entries" / Int64sb,
    "physical_ms" / Int64sb,
    "queues_ms" / Int64sb,
    "index_ms" / Int64sb,
    "index_name" / Bytes(20),
    "index_begin_ms" / Int64sb,
    "index_end_ms" / Int64sb,
    "index_begin_offset" / Int64sb,
    "index_end_offset" / Int64sb,
    "index_slots_used" / Int32sb,
    "index_entry_count" / Int32sb,
    "crc" / Int32ub,
)
"""One of the two slots of the file `recovery-point`; the valid one with the higher sequence counts.

Everything below `physical_offset` is on disk: the log, its ConsumeQueue entries and its index
entries. `queue_entries` is the sum of all queues' ends then, so that a lost queue is noticed. The
times are those of `checkpoint` when it was written; where they differ from the file, a
stock broker wrote the store since, and the point says nothing.
"""

LIVE_MARK_AT: Final = 2 * RECOVERY_POINT_SLOT_BYTES
LIVE_MARK_MAGIC: Final = b"rmqlive1"
LiveMark = Struct("magic" / Const(LIVE_MARK_MAGIC), "flushed" / Int64sb, "is_raw" / Int8sb)
"""Behind the two slots of `recovery-point`: the offset up to which the log of a running store is on
disk, for readers in other processes, and whether it is written as raw bytes, as a slave does (1) or
not (0). It is not synced: only what the slots say counts after a crash.
"""
LIVE_MARK_VALUES: Final = struct_of(Struct(LiveMark.flushed, LiveMark.is_raw))
"""What follows its magic."""
RECOVERY_POINT_FILE_BYTES: Final = 4096
