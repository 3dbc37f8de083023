"""Commands and typed headers drawn at random, for comparing ways to write and read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from hypothesis import strategies as st

from rmq.remoting.codes import LanguageCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.header import Int32, Int64

if TYPE_CHECKING:
    from rmq.remoting.header import Header


class Parts(NamedTuple):
    """Everything that a frame says."""

    serialization: Serialization
    code: int
    flag: int
    opaque: int
    version: int
    language: LanguageCode
    remark: str | None
    ext: dict[str, str]
    body: bytes

    def encode(self) -> bytes:
        """Return the frame as we write it."""
        prefix = encode_frame(
            code=self.code,
            flag=self.flag,
            opaque=self.opaque,
            extra=self.ext,
            remark=self.remark,
            body_length=len(self.body),
            serialization=self.serialization,
            language=self.language,
            version=self.version,
        )
        return prefix + self.body


def int16s() -> st.SearchStrategy[int]:
    return st.integers(-(2**15), 2**15 - 1)


def int32s() -> st.SearchStrategy[int]:
    return st.integers(-(2**31), 2**31 - 1)


def texts(size_min: int = 0) -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=size_min, max_size=20)


@st.composite
def parts(draw: st.DrawFn, serialization: Serialization | None = None) -> Parts:
    if serialization is None:
        serialization = draw(st.sampled_from(Serialization))
    is_json = serialization is Serialization.JSON
    # The binary serialization has no empty texts, and less room for two of the numbers.
    some_texts = texts(0 if is_json else 1)
    numbers = int32s() if is_json else int16s()
    return Parts(
        serialization=serialization,
        code=draw(numbers),
        flag=draw(int32s()),
        opaque=draw(int32s()),
        version=draw(numbers),
        language=draw(st.sampled_from(LanguageCode)),
        remark=draw(st.none() | some_texts),
        ext=draw(st.dictionaries(some_texts, some_texts, max_size=5)),
        body=draw(st.binary(max_size=50)),
    )


_VALUES: Final[list[tuple[Any, st.SearchStrategy[Any]]]] = [
    (str, texts()),
    (bool, st.booleans()),
    (Int32, int32s()),
    (Int64, st.integers(-(2**63), 2**63 - 1)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
]


def headers(header_class: type[Header]) -> st.SearchStrategy[Header]:
    """Return a strategy for headers of a class; what may be null sometimes is."""
    values: dict[str, st.SearchStrategy[Any]] = {}
    for info in msgspec.structs.fields(header_class):
        for kind, drawn in _VALUES:
            if info.type == kind:
                values[info.name] = drawn
            elif info.type == kind | None:
                values[info.name] = st.none() | drawn
    return st.builds(header_class, **values)
