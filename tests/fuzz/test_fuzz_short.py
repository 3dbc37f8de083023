"""A short run of the fuzz target, and proof that it would notice."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING

import pytest

from rmq.remoting.codes import RequestCode, Serialization
from tests.fuzz import oracle
from tests.fuzz.fuzz_remoting import Memory, Report, fuzz
from tests.fuzz.oracle import Outcome, examine
from tests.fuzz.seeds import all_seeds
from tests.remoting.frames import receive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmq.remoting.command import Command


def assert_nothing_found(report: Report) -> None:
    assert not report.findings, "\n".join([str(report), *report.findings])


def test_five_thousand_mutated_frames_are_read_or_refused() -> None:
    report = fuzz(frames=5000, seed=498)
    assert_nothing_found(report)
    assert report.frames == 5000
    # Mutations that are all refused, or none of them, would prove little.
    assert report.decoded > 2000
    assert report.refused > 1000
    assert report.headers > 1000
    assert report.bodies > 200


def test_seeds_are_sound_and_of_every_request_in_both_serializations() -> None:
    requests: set[tuple[int, Serialization]] = set()
    answered: set[tuple[int, Serialization]] = set()
    for seed in all_seeds():
        (command,), error, held_bytes = receive(seed.frame)
        assert (error, held_bytes) == (None, 0)
        examine([seed.frame], 1, seed.answers)
        if command.is_response:
            assert seed.answers is not None
            answered.add((seed.answers, command.serialization))
        else:
            requests.add((command.code, command.serialization))
    everything = {(int(code), member) for code in RequestCode for member in Serialization}
    assert requests == answered == everything


def test_a_run_can_be_repeated_from_any_number() -> None:
    seen: list[bytes] = []

    def look(chunks: Iterable[bytes], take: int, answers: RequestCode | None) -> Outcome:
        seen.append(b"|".join([*chunks, b"%d" % take]))
        return Outcome(0, refused=False, headers=0, bodies=0)

    fuzz(frames=30, seed=5, examine=look)
    fuzz(frames=1, seed=5, start=17, examine=look)
    fuzz(frames=30, seed=6, examine=look)
    assert seen[30] == seen[17]
    assert seen[:30] != seen[31:]
    assert len(set(seen)) == 60


def test_an_exception_is_found_with_all_that_is_needed_to_repeat_it() -> None:
    def fail(chunks: Iterable[bytes], take: int, answers: RequestCode | None) -> Outcome:
        raise KeyError("topic")

    report = fuzz(frames=10, seed=7, examine=fail)
    (finding,) = report.findings
    assert report.counts.total() == 10
    assert finding.startswith("KeyError in fail (test_fuzz_short.py:")
    assert "seed 7, number 0, chunks " in finding
    assert bytes.fromhex(finding.rsplit("\n", 1)[1])


def test_a_decoder_for_runs_that_reads_something_else_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def altered(decode: Callable[[bytes], Command]) -> Callable[[bytes], Command]:
        def read(header: bytes) -> Command:
            command = decode(header)
            command.remark = "something else"
            return command

        return read

    decoders = {code: altered(decode) for code, decode in oracle._WHOLE_DECODERS.items()}
    monkeypatch.setattr(oracle, "_WHOLE_DECODERS", decoders)
    report = fuzz(frames=50, seed=498)
    assert any("reading in one pass shows" in finding for finding in report.findings)


def test_a_frame_that_takes_too_long_is_found() -> None:
    def hang(chunks: Iterable[bytes], take: int, answers: RequestCode | None) -> Outcome:
        end = time.process_time() + 10
        while time.process_time() < end:
            pass
        return Outcome(0, refused=False, headers=0, bodies=0)

    report = fuzz(frames=1, seed=7, examine=hang, frame_cpu_seconds_max=0.05)
    (finding,) = report.findings
    assert finding.startswith("a frame takes too long")
    assert report.seconds < 5


@pytest.mark.parametrize(
    ("resident_step", "peak_step", "found"),
    [
        pytest.param(20 << 20, 0, ["memory in use grew by 41943040 bytes"], id="for good"),
        pytest.param(
            0, 80 << 20, ["memory in use grew by 167772160 bytes for a moment"], id="for a moment"
        ),
        pytest.param(15 << 20, 60 << 20, [], id="within bounds"),
    ],
)
def test_memory_that_grows_once_caches_are_warm_is_found(
    resident_step: int, peak_step: int, found: list[str]
) -> None:
    def nothing(chunks: Iterable[bytes], take: int, answers: RequestCode | None) -> Outcome:
        return Outcome(0, refused=False, headers=0, bodies=0)

    # Asked once at the start and after every thousand frames; the first half is the warm-up.
    memory = Memory(
        resident_bytes=count(0, resident_step).__next__, peak_bytes=count(0, peak_step).__next__
    )
    assert fuzz(frames=4000, examine=nothing, memory=memory).findings == found


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"\0\0\0\6\0\0\0\2{}", id="sound"),
        pytest.param(b"\0\0\0\6\0\0\0\2{]", id="unsound"),
        pytest.param(b"\0\0\0\7\0\0\0\2{}", id="unfinished"),
    ],
)
def test_every_split_of_a_stream_comes_to_the_same(stream: bytes) -> None:
    outcomes = {examine([stream[:cut], stream[cut:]], 1, None) for cut in range(1, len(stream))}
    assert len(outcomes) == 1
