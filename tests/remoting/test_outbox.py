"""The outbox: bytes leave in order, and its counts are right after every partial write."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from rmq.remoting.outbox import Outbox, as_one, first_piece


@dataclass
class Model:
    """The same as one byte string and a list of what it consists of."""

    unwritten: bytearray = field(default_factory=bytearray)
    queued: int = 0
    oneway_ends: list[int] = field(default_factory=list)
    answer_ends: list[tuple[int, int]] = field(default_factory=list)

    @property
    def written(self) -> int:
        return self.queued - len(self.unwritten)

    def add(self, kind: str, data: bytes) -> None:
        start = self.queued
        self.unwritten += data
        self.queued += len(data)
        if kind == "oneway":
            self.oneway_ends.append(self.queued)
        elif kind == "answer":
            self.answer_ends.append((start, self.queued))

    @property
    def oneways(self) -> int:
        return sum(end > self.written for end in self.oneway_ends)

    @property
    def answer_bytes(self) -> int:
        return sum(max(0, end - max(start, self.written)) for start, end in self.answer_ends)


steps = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["answer", "request", "oneway"]),
            st.binary(min_size=1, max_size=30),
            st.one_of(st.none(), st.binary(max_size=30)),
        ),
        st.floats(0, 1),
    ),
    max_size=40,
)


@given(steps)
def test_bytes_leave_in_order_and_the_counts_follow(
    steps: list[tuple[str, bytes, bytes | None] | float],
) -> None:
    outbox = Outbox()
    model = Model()
    for step in steps:
        if isinstance(step, float):
            count = int(outbox.size * step)
            assert b"".join(outbox.buffers)[:count] == bytes(model.unwritten[:count])
            outbox.sent(count)
            del model.unwritten[:count]
        else:
            kind, frame, body = step
            add = {
                "answer": outbox.add_answer,
                "request": outbox.add_request,
                "oneway": outbox.add_oneway,
            }[kind]
            add(frame, body)
            model.add(kind, frame + (body or b""))
        assert b"".join(outbox.buffers) == bytes(model.unwritten)
        assert outbox.size == len(model.unwritten)
        assert outbox.oneways == model.oneways
        # Where requests and answers are mixed this is a bound; it is exact once nothing is left.
        assert model.answer_bytes <= outbox.answer_bytes <= outbox.size


def test_a_large_body_is_not_copied() -> None:
    body = memoryview(bytearray(1_000_000))
    outbox = Outbox()
    outbox.add_answer(b"head", body)
    assert outbox.buffers[1] is body
    outbox.sent(4 + 10)
    rest = outbox.buffers[0]
    assert isinstance(rest, memoryview)
    assert rest.obj is body.obj
    assert len(rest) == outbox.size == 999_990


def test_clearing_forgets_everything() -> None:
    outbox = Outbox()
    outbox.add_oneway(b"a", b"b")
    outbox.add_answer(b"c")
    outbox.clear()
    assert (outbox.size, outbox.oneways, outbox.answer_bytes, len(outbox.buffers)) == (0, 0, 0, 0)


def test_an_empty_body_adds_nothing() -> None:
    outbox = Outbox()
    outbox.add_answer(b"head", b"")
    assert list(outbox.buffers) == [b"head"]


# --- how much goes into one call of the system --------------------------------------------------

_BUFFERS = st.lists(st.binary(max_size=100), min_size=1)


@given(_BUFFERS)
def test_short_buffers_are_joined_for_one_call(buffers: list[bytes]) -> None:
    assert as_one(buffers) == b"".join(buffers)


def test_long_buffers_are_not_copied() -> None:
    long = bytes(100_000)
    assert as_one([long]) is long
    assert as_one([long, long]) is None


@given(_BUFFERS, st.integers(0, 3))
def test_the_first_piece_is_what_comes_first(buffers: list[bytes], at: int) -> None:
    buffers.insert(min(at, len(buffers)), bytes(60_000))
    whole = b"".join(buffers)
    assert first_piece(buffers) == whole[: 64 * 1024]
