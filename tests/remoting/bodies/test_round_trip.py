"""Every body class, with drawn values: what is written is read back the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.errors import ProtocolError
from rmq.model import fastjson
from rmq.remoting.bodies import Body, RegisterBrokerBody
from rmq.remoting.bodies.reading import Mismatch, reader_of
from rmq.remoting.bodies.registration_steps import read_registration
from tests.remoting.bodies.strategies import BODY_CLASSES, values_of
from tests.stepping import finish

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

QUICK = settings(max_examples=20)

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "null", "true", "-7", "1.5", "SINGLE_TAG", "T", "[]"]),
    st.sampled_from([[], {}, [1], {"0": 1}]),
)


@pytest.mark.parametrize("body_class", BODY_CLASSES, ids=lambda kind: kind.__name__)
@QUICK
@given(data=st.data())
def test_a_body_is_read_back_as_it_was_written(body_class: type[Body], data: st.DataObject) -> None:
    body = data.draw(values_of(body_class))

    assert body_class.decode(body.encode()) == body
    assert body_class.decode(body.encode(standard=True)) == body


@pytest.mark.parametrize("body_class", BODY_CLASSES, ids=lambda kind: kind.__name__)
@QUICK
@given(data=st.data())
def test_the_fast_reader_and_the_tolerant_one_agree(
    body_class: type[Body], data: st.DataObject
) -> None:
    """On what is written by a peer, and on the same with one value replaced by any other."""
    plain = fastjson.loads(data.draw(values_of(body_class)).encode())
    places = list(_places(plain))
    if places:
        container, slot = data.draw(st.sampled_from(places))
        container[slot] = data.draw(SCALARS)
    encoded = fastjson.dumps(plain)

    try:
        expected = reader_of(body_class)(fastjson.loads(encoded))
    except Mismatch:
        with pytest.raises(ProtocolError):
            body_class.decode(encoded)
    else:
        assert body_class.decode(encoded) == expected


@QUICK
@given(body=values_of(RegisterBrokerBody))
def test_a_registration_without_what_compression_drops_is_read_back_as_it_was(
    body: RegisterBrokerBody,
) -> None:
    topics = body.topic_config_serialize_wrapper.topic_config_table.values()
    if any(" " in topic.topic_name for topic in topics):
        return
    read = finish(read_registration(body.encode_compressed(), compressed=True))

    assert read.filter_server_list == body.filter_server_list
    wrapper = read.topic_config_serialize_wrapper
    assert wrapper.data_version == body.topic_config_serialize_wrapper.data_version
    assert wrapper.topic_config_table == {
        topic.topic_name: type(topic)(
            topic_name=topic.topic_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm,
            topic_filter_type=topic.topic_filter_type,
        )
        for topic in topics
    }


def _places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - any JSON value
    """Yield container and slot of everything inside a value."""
    slots: Iterable[Any] = ()
    if isinstance(value, dict):
        slots = list(value)
    elif isinstance(value, list):
        slots = range(len(value))
    for slot in slots:
        yield value, slot
        yield from _places(value[slot])
