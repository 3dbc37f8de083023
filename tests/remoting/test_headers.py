"""Header classes: where they are declared, and every class through both serializations."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.errors import HeaderError
from rmq.model.limits import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from rmq.remoting.codes import RequestCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.header import EmptyHeader, Header, Int32, Int64, ext_fields_of
from rmq.remoting.headers import (
    SendMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from rmq.remoting.layout import FRAME_PREFIX
from rmq.remoting.protocol import REQUESTS, Requests
from tests.remoting.header_fields import ALL_CLASSES, decode, full_ext, info_of, kind_of, sent

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.remoting.command import Command

SHARED_CLASSES: Final[dict[type[Header], set[RequestCode]]] = {
    EmptyHeader: {
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.GET_ALL_PRODUCER_INFO,
    },
    SendMessageResponse: {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    },
}
"""Classes that too many requests share for their documentation to name each."""

UNUSED_CODES: Final = {13, 22, 23, 27, 209, 210, 211, 212, 213, 214, 301}
"""Request codes that nothing in 4.9.8 sends or serves."""

V1_NAMES: Final = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "bname",
}

LIMITS: Final[dict[Any, tuple[int, int]]] = {
    Int32: (INT32_MIN, INT32_MAX),
    Int64: (INT64_MIN, INT64_MAX),
}
SERIALIZATIONS: Final = [pytest.param(member, id=member.name) for member in Serialization]

classes = pytest.mark.parametrize(
    "header_class",
    [pytest.param(header_class, id=header_class.__name__) for header_class in ALL_CLASSES],
)
serializations = pytest.mark.parametrize("serialization", SERIALIZATIONS)


def fields_where(wanted: Callable[[msgspec.structs.FieldInfo], bool]) -> pytest.MarkDecorator:
    """Run a test for every class, with the names of its fields that are `wanted`."""
    fields = {
        header_class: [name for name, info in info_of(header_class).items() if wanted(info)]
        for header_class in ALL_CLASSES
    }
    return pytest.mark.parametrize(
        ("header_class", "names"),
        [
            pytest.param(header_class, names, id=header_class.__name__)
            for header_class, names in fields.items()
            if names
        ],
    )


mandatory_fields = fields_where(lambda info: info.required)
integer_fields = fields_where(lambda info: kind_of(info) in (Int32, Int64))
boolean_fields = fields_where(lambda info: kind_of(info) is bool)


# --- the declarations -----------------------------------------------------------------------


def test_one_request_alone_is_sent_with_an_empty_header() -> None:
    found = [request for request in REQUESTS.values() if request.header is EmptyHeader]
    assert found == [Requests.GET_ALL_PRODUCER_INFO]


def test_unused_codes_have_no_classes() -> None:
    for code in UNUSED_CODES:
        request = REQUESTS[RequestCode(code)]
        assert request.header is None
        assert request.response_header is None


@classes
def test_classes_are_declared_for_the_codes_their_documentation_names(
    header_class: type[Header],
) -> None:
    named = re.findall(r"\b(\d+) ([A-Z]+_[A-Z0-9_]+)", header_class.__doc__ or "")
    expected = SHARED_CLASSES.get(header_class, {RequestCode[name] for _, name in named})
    used_by = {
        code
        for code, request in REQUESTS.items()
        if header_class in (request.header, request.response_header)
    }
    assert used_by == expected
    assert all(int(number) == RequestCode[name] for number, name in named)


# --- both serializations --------------------------------------------------------------------


@cache
def headers_of(
    header_class: type[Header], serialization: Serialization
) -> st.SearchStrategy[Header]:
    # In the binary serialization an empty text arrives as null.
    text_length_min = 1 if serialization is Serialization.ROCKETMQ else 0
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(st.characters(exclude_categories=["Cs"]), min_size=text_length_min),
        bool: st.booleans(),
        Int32: st.integers(INT32_MIN, INT32_MAX),
        Int64: st.integers(INT64_MIN, INT64_MAX),
    }
    values = {}
    for info in msgspec.structs.fields(header_class):
        values[info.name] = kinds[kind_of(info)]
        if not info.required and info.default is None:
            values[info.name] = st.none() | values[info.name]
    return st.builds(header_class, **values)


@serializations
@classes
@settings(max_examples=20)
@given(data=st.data())
def test_headers_survive_a_frame(
    header_class: type[Header], serialization: Serialization, data: st.DataObject
) -> None:
    header = data.draw(headers_of(header_class, serialization))
    command = decode(encode_frame(code=0, header=header, serialization=serialization))
    assert command.header(header_class) == header


@classes
def test_headers_are_frozen(header_class: type[Header]) -> None:
    header = sent(full_ext(header_class), Serialization.JSON).header(header_class)
    for info in msgspec.structs.fields(header_class):
        with pytest.raises(AttributeError):
            setattr(header, info.name, None)


@serializations
@classes
def test_unknown_fields_are_ignored(
    header_class: type[Header], serialization: Serialization
) -> None:
    ext = full_ext(header_class)
    header = sent({**ext, "ReqT": "0", "Signature": "="}, serialization).header(header_class)
    assert ext_fields_of(header) == ext


@serializations
@classes
def test_a_header_needs_its_mandatory_fields_only(
    header_class: type[Header], serialization: Serialization
) -> None:
    infos = info_of(header_class)
    ext = {name: text for name, text in full_ext(header_class).items() if infos[name].required}
    header = sent(ext, serialization).header(header_class)
    for info in infos.values():
        if not info.required:
            assert getattr(header, info.name) == info.default


@serializations
@mandatory_fields
def test_a_missing_mandatory_field_is_named(
    header_class: type[Header], names: list[str], serialization: Serialization
) -> None:
    for name in names:
        ext = full_ext(header_class)
        del ext[name]
        command = sent(ext, serialization)
        with pytest.raises(HeaderError, match=rf"missing required field `{name}`"):
            command.header(header_class)


def with_text(
    header_class: type[Header], name: str, text: str, serialization: Serialization
) -> Command:
    """Return what is received when one field has a text."""
    return sent({**full_ext(header_class), name: text}, serialization)


def read_as(
    header_class: type[Header], name: str, text: str, serialization: Serialization
) -> object:
    """Return the value that a text of a field is read as."""
    header = with_text(header_class, name, text, serialization).header(header_class)
    return getattr(header, info_of(header_class)[name].name)


@serializations
@integer_fields
def test_a_malformed_integer_is_refused_and_named(
    header_class: type[Header], names: list[str], serialization: Serialization
) -> None:
    for name, text in product(names, ("x", "12x", " 1", "0x10", "1_000")):
        command = with_text(header_class, name, text, serialization)
        with pytest.raises(HeaderError, match=rf"`{name}`: not an integer"):
            command.header(header_class)


class Numbers(Header, frozen=True, kw_only=True):
    """A header with a number."""

    number: Int32


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5),
        ("+5", 5),
        ("-5", -5),
        ("-0", 0),
        ("007", 7),
        ("0" * 5_000 + "12", 12),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("\uff11\uff12", 12),
        ("-\u0661\u0662", -12),
        ("1\u0966", 10),
        ("2147483648", None),
        ("-2147483649", None),
        ("9" * 5_000, None),
        ("-" + "9" * 20, None),
        ("", None),
        ("+", None),
        ("-", None),
        ("+-5", None),
        (" 5", None),
        ("5 ", None),
        ("5\n", None),
        ("\t5", None),
        ("5_000", None),
        ("5,000", None),
        ("0x10", None),
        ("0b1", None),
        ("5L", None),
        ("5.5", None),
        ("true", None),
        ("Infinity", None),
        ("\u00bd", None),
        ("\u00b2", None),
        ("\u2164", None),
        ("\U0001d7d3", None),
        ("\uff0b5", None),
        ("\uff11" * 2_000, None),
    ],
)
@serializations
def test_an_integer_is_what_java_reads(
    text: str, number: int | None, serialization: Serialization
) -> None:
    if not text and serialization is Serialization.ROCKETMQ:
        return  # An empty text is none there.
    command = sent({"number": text}, serialization)
    if number is None:
        with pytest.raises(HeaderError):
            command.header(Numbers)
    else:
        assert command.header(Numbers).number == number


def test_a_long_text_that_is_nearly_a_number_is_refused_at_once() -> None:
    command = sent({"number": "0" * 500_000 + "x"}, Serialization.ROCKETMQ)
    with pytest.raises(HeaderError, match="not an integer"):
        command.header(Numbers)


@serializations
@integer_fields
def test_integers_are_read_within_their_java_range_only(
    header_class: type[Header], names: list[str], serialization: Serialization
) -> None:
    for name in names:
        low, high = LIMITS[kind_of(info_of(header_class)[name])]
        for value in (low, high):
            assert read_as(header_class, name, str(value), serialization) == value, name
        for value in (low - 1, high + 1):
            command = with_text(header_class, name, str(value), serialization)
            with pytest.raises(HeaderError, match=rf"\$\.{name}`"):
                command.header(header_class)


@serializations
@integer_fields
def test_integers_are_read_as_java_reads_them(
    header_class: type[Header], names: list[str], serialization: Serialization
) -> None:
    for name, text in product(names, ("5", "+5", "05")):
        assert read_as(header_class, name, text, serialization) == 5, (name, text)


@serializations
@boolean_fields
def test_only_true_in_any_case_is_read_as_true(
    header_class: type[Header], names: list[str], serialization: Serialization
) -> None:
    for name, text in product(names, ("true", "TRUE", "tRuE", "false", "FALSE", "yes")):
        value = read_as(header_class, name, text, serialization)
        assert value is (text.lower() == "true"), (name, text)


@classes
def test_numbers_and_booleans_without_quotes_are_read_like_quoted_ones(
    header_class: type[Header],
) -> None:
    """The C++ client sends them so; the original's JSON reader makes texts of them."""
    ext = full_ext(header_class)
    bare = {name: text if text == "text" else json.loads(text) for name, text in ext.items()}
    encoded = json.dumps({"code": 0, "extFields": bare}).encode()
    frame = FRAME_PREFIX.pack(4 + len(encoded), len(encoded)) + encoded
    header = decode(frame).header(header_class)
    assert header == sent(ext, Serialization.JSON).header(header_class)


# --- the two spellings of a send ------------------------------------------------------------


@settings(max_examples=50)
@given(headers_of(SendMessageRequestV2, Serialization.JSON))
def test_a_send_says_the_same_in_both_spellings(request: SendMessageRequestV2) -> None:
    short = ext_fields_of(request)
    assert ext_fields_of(request.to_v1()) == {V1_NAMES[name]: text for name, text in short.items()}


def test_both_spellings_of_a_send_have_the_same_fields() -> None:
    assert list(V1_NAMES) == list(info_of(SendMessageRequestV2))
    assert set(V1_NAMES.values()) == set(info_of(SendMessageRequest))
