"""The properties of many records at once, with the meaning of `rmq.model.properties`.

All properties are copied into one buffer, each with a 0x02 before it. In that buffer a pair begins
behind a 0x02 and ends before the next one, and its name ends at its first 0x01; so all pairs of all
records are found from the separators alone. A pair without 0x01, name or value is left out by the
same comparison, for a trailing 0x02 leaves an empty pair.

Two things are rare and cost more: the same name twice in a record, of which the last counts, and
bytes that are not UTF-8. A name is told from another by its length and its first eight bytes; only
where these are equal within a record are all names compared in full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from rmq.model.properties import NAME_VALUE, PAIR
from rmq.spark.decoding.spans import as_text, binary_spans, utf8_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rmq.spark.decoding.heads import Heads

_NAME_VALUE: Final = NAME_VALUE[0]
_PAIR: Final = PAIR[0]
_WORD_BYTES: Final = 8
_ASCII_END: Final = 0x80
_LAGS_MAX: Final = 32
"""Records with more pairs than this have their names compared in full at once."""


class Properties:
    """The pairs of all records, in the order they stand there."""

    def __init__(self, heads: Heads) -> None:
        """Find the pairs of the records."""
        self.record_count = len(heads)
        # The byte before the properties, which is the end of their length, becomes the 0x02.
        copied = binary_spans(heads.data, heads.properties_starts - 1, heads.ends)
        _, offsets, content = copied.buffers()
        begins = np.frombuffer(offsets, np.int32, len(heads) + 1)
        size = int(begins[-1])
        # One 0x02 behind the last pair, and room for a word to be read at any name.
        text = np.zeros(size + 1 + _WORD_BYTES, np.uint8)
        if size:
            text[:size] = np.frombuffer(content, np.uint8, size)
        text[begins] = _PAIR
        self._text = text
        # Nearly always, and then nothing that is cut out of it has to be checked.
        self._is_ascii = int(text.max()) < _ASCII_END
        self._find(begins)

    def _find(self, begins: NDArray[np.int32]) -> None:
        text = self._text[: begins[-1] + 1]
        # Of bytes below 3, which are rare, 0x00 is none of the two.
        separators = np.flatnonzero(text <= _PAIR)
        kinds = text[separators]
        if not kinds.all():
            separators, kinds = separators[kinds != 0], kinds[kinds != 0]
        is_name_end = np.zeros(len(kinds), np.bool_)
        is_name_end[1:] = (kinds[1:] == _NAME_VALUE) & (kinds[:-1] == _PAIR)
        name_ends = np.flatnonzero(is_name_end)
        self.name_starts = separators[name_ends - 1] + 1
        self.name_ends = separators[name_ends]
        # A value may have 0x01 in it: it ends at the next 0x02.
        following = name_ends + 1
        if (kinds[following] != _PAIR).any():
            pair_ends = np.flatnonzero(kinds == _PAIR)
            following = pair_ends[np.searchsorted(pair_ends, name_ends)]
        self.value_starts = self.name_ends + 1
        self.value_ends = separators[following]
        is_whole = self.name_starts < self.name_ends
        is_whole &= self.value_starts < self.value_ends
        if not is_whole.all():
            self.name_starts, self.name_ends = self.name_starts[is_whole], self.name_ends[is_whole]
            self.value_starts = self.value_starts[is_whole]
            self.value_ends = self.value_ends[is_whole]
        # The number of pairs before each record, and so the offsets of a map.
        self.record_offsets = np.searchsorted(self.name_starts, begins).astype(np.int32)
        self.name_lengths = self.name_ends - self.name_starts
        self.name_words = self._words(self.name_starts, self.name_lengths)

    def _words(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the first eight bytes of names, those behind a shorter one as zeros."""
        windows = np.ndarray(
            len(self._text) - _WORD_BYTES + 1, np.dtype("<u8"), self._text, strides=(1,)
        )
        words: NDArray[np.uint64] = windows[starts]
        missing = 8 * (_WORD_BYTES - np.minimum(lengths, _WORD_BYTES)).astype(np.uint64)
        words <<= missing
        words >>= missing
        return words

    def values_of(self, name: str) -> pa.StringArray:
        """Return the value of one property for all records, null where there is none."""
        return self._as_text(self._binary_values_of(name.encode()))

    def _as_text(self, values: pa.BinaryArray) -> pa.StringArray:
        return values.view(pa.string()) if self._is_ascii else as_text(values)

    def _binary_values_of(self, name: bytes) -> pa.BinaryArray:
        if len(name) > _WORD_BYTES:
            raise ValueError(f"{name!r} has more than {_WORD_BYTES} bytes")
        word = np.uint64(int.from_bytes(name, "little"))
        pairs = np.flatnonzero((self.name_words == word) & (self.name_lengths == len(name)))
        if len(pairs) == 0:
            return pa.nulls(self.record_count, pa.binary())
        if len(pairs) == self.record_count and self._is_one_for_each(pairs):
            return binary_spans(self._text, self.value_starts[pairs], self.value_ends[pairs])
        rows = self._rows_of(pairs)
        # Of several in one record the last is assigned last.
        pair_of = np.full(self.record_count, -1, np.int64)
        pair_of[rows] = pairs
        has_value = pair_of >= 0
        chosen = pair_of[has_value]
        values = binary_spans(self._text, self.value_starts[chosen], self.value_ends[chosen])
        places = np.cumsum(has_value) - 1
        return values.take(pa.array(places, mask=~has_value))

    def _is_one_for_each(self, pairs: NDArray[np.int64]) -> bool:
        """Tell whether each record has one of some pairs."""
        offsets = self.record_offsets
        return bool((pairs >= offsets[:-1]).all() and (pairs < offsets[1:]).all())

    def _rows_of(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the records that some pairs belong to."""
        found: NDArray[np.int64] = np.searchsorted(self.record_offsets, pairs, side="right") - 1
        return found

    def maps(self) -> pa.MapArray:
        """Return all properties of all records."""
        names = binary_spans(self._text, self.name_starts, self.name_ends)
        values = binary_spans(self._text, self.value_starts, self.value_ends)
        offsets = self.record_offsets
        text = names.view(pa.string()) if self._is_ascii else utf8_text(names)
        if text is None or self._may_repeat():
            # Different bytes that are not UTF-8 may read as the same name.
            text, values, offsets = self._without_repeats(as_text(names), values)
        return pa.MapArray.from_arrays(pa.array(offsets), text, self._as_text(values))

    def _may_repeat(self) -> bool:
        """Tell whether a record may have a name twice; if not, none has."""
        most = int(np.diff(self.record_offsets).max(initial=0))
        if most > _LAGS_MAX:
            return True
        rows = np.repeat(np.arange(self.record_count, dtype=np.int32), np.diff(self.record_offsets))
        words, lengths = self.name_words, self.name_lengths
        for lag in range(1, most):
            is_equal = words[lag:] == words[:-lag]
            if is_equal.any():
                is_equal &= rows[lag:] == rows[:-lag]
                is_equal &= lengths[lag:] == lengths[:-lag]
                if is_equal.any():
                    return True
        return False

    def _without_repeats(
        self, names: pa.StringArray, values: pa.BinaryArray
    ) -> tuple[pa.StringArray, pa.BinaryArray, NDArray[np.int32]]:
        """Return names, values and offsets with the last of several pairs of one name only."""
        encoded = names.dictionary_encode()
        codes = np.asarray(encoded.indices, np.int64)
        rows = self._rows_of(np.arange(len(names)))
        keys = rows * max(len(encoded.dictionary), 1) + codes
        # np.unique gives the first of equal ones, so the order is reversed.
        _, from_behind = np.unique(keys[::-1], return_index=True)
        kept = np.sort(len(keys) - 1 - from_behind)
        offsets = np.searchsorted(kept, self.record_offsets).astype(np.int32)
        chosen = pa.array(kept)
        return names.take(chosen), values.take(chosen), offsets
