"""The batches of one part of a CommitLog: what a task of Spark does."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rmq.errors import StorageError
from rmq.spark.decoding.heads import UnsoundRecordError
from rmq.spark.decoding.records import RecordDecoder
from rmq.spark.files.filters import RowFilter
from rmq.spark.files.scan import Damage, Scan, damaged
from rmq.store.reader.files import FileGoneError, FilePool
from rmq.store.reader.log import LogFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from rmq.spark.decoding.heads import Heads
    from rmq.spark.files.planning import LogPart
    from rmq.spark.files.settings import StoreOptions

logger = logging.getLogger(__name__)

NARROWING: Final = 16
"""Where a record of a batch cannot be read, the batch is divided by this until it is alone."""


def read_part(options: StoreOptions, part: LogPart) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one part of the log, as the options say."""
    files = FilePool()
    try:
        yield from PartReader(options, part, files).batches()
    except FileGoneError as gone:
        if options.fails_on_data_loss:
            raise lost_segment(part) from gone
        logger.warning("skipped: %s", lost_segment(part))
    finally:
        files.close()


def lost_segment(part: LogPart) -> StorageError:
    """Return the error for a segment that is not there any more."""
    return StorageError(
        "read",
        str(part.path),
        f"the segment was deleted before offsets {part.start} to {part.stop} were read",
        hint="retention is faster than this query: read a copy, or less of the log;"
        " failOnDataLoss=false reads what is there",
    )


class PartReader:
    """Reads one part of the log."""

    def __init__(self, options: StoreOptions, part: LogPart, files: FilePool) -> None:
        self._options = options
        self._part = part
        self._damage = Damage(skips=options.skips_corrupt)
        self._filter = RowFilter(options)
        self._decoder = RecordDecoder(
            options.columns,
            decompress=options.decompress,
            verify_crc=options.verify_crc,
            broker_name=options.broker_name,
        )
        self._scan = Scan(
            files,
            LogFiles(files, options.log_paths, part.segment_bytes),
            part,
            self._damage,
            block_rows=options.batch_rows,
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        for block in self._scan:
            rows = self._filter.chosen(block.heads)
            count = len(rows)
            if count:
                # As even as possible: small batches cost as much as large ones.
                pieces = -(-count // self._options.batch_rows)
                yield from self._decoded(rows, -(-count // pieces))

    def _decoded(self, heads: Heads, rows_max: int) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(heads), rows_max):
            part = heads if rows_max >= len(heads) else heads.part(slice(first, first + rows_max))
            done = 0
            try:
                for batch in self._decoder.batches_of(part):
                    done += batch.num_rows
                    yield batch
            except UnsoundRecordError as bad:
                if len(part) == 1 or not self._damage.skips:
                    self._damage.report(damaged(self._part, bad.physical_offset, bad.reason))
                else:
                    rest = part.part(slice(done, None))
                    yield from self._decoded(rest, max(rows_max // NARROWING, 1))
