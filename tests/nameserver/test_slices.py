"""Jobs done in slices: what is done at once, whose turn it is, and how much one pass does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.nameserver.slices import BUDGET_S, JobQueue, Slices

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest


class Work:
    """Jobs whose steps take as long as they say."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done: list[str] = []
        self.slices = Slices(lambda: self.now)
        self.woken = 0
        self.slices.on_work = self._wake

    def job(self, name: str, steps: int, *, step_s: float = 0.001) -> Generator[None, None, None]:
        for number in range(steps):
            self.done.append(f"{name}{number}")
            self.now += step_s
            if number < steps - 1:
                yield

    def passes(self) -> list[list[str]]:
        """What each pass of the loop does, until nothing is left."""
        passes: list[list[str]] = []
        while self.slices.is_waiting:
            self.done.clear()
            self.slices.work()
            passes.append(list(self.done))
        return passes

    def _wake(self) -> None:
        self.woken += 1


def test_a_short_job_is_done_when_it_is_submitted() -> None:
    work = Work()
    assert work.slices.submit(JobQueue.ANSWERS, work.job("a", 1))
    assert work.done == ["a0"]
    assert not work.slices.is_waiting
    assert not work.woken


def test_a_long_job_begins_at_once_and_goes_on_in_later_passes() -> None:
    work = Work()
    assert not work.slices.submit(JobQueue.ANSWERS, work.job("a", 8))
    assert work.done == ["a0", "a1", "a2"]
    assert work.woken
    assert work.passes() == [["a3", "a4", "a5"], ["a6", "a7"], []]


def test_many_short_jobs_do_not_take_more_than_the_budget_of_a_pass() -> None:
    work = Work()
    complete = [work.slices.submit(JobQueue.ANSWERS, work.job(name, 1)) for name in "abcdefgh"]
    assert complete == [True] * 3 + [False] * 5
    assert work.passes() == [["d0", "e0", "f0"], ["g0", "h0"], []]


def test_the_budget_is_one_for_all_queues() -> None:
    work = Work()
    for queue in JobQueue:
        work.slices.submit(queue, work.job(queue.name, 4))
    for done in work.passes():
        assert len(done) * 0.001 <= BUDGET_S + 0.0005


def test_jobs_of_a_queue_wait_for_each_other_and_queues_take_turns() -> None:
    work = Work()
    work.slices.submit(JobQueue.LONG_CHANGES, work.job("long", 9))
    work.slices.submit(JobQueue.LONG_CHANGES, work.job("next", 1))
    work.slices.submit(JobQueue.CHANGES, work.job("short", 1))
    assert work.slices.waiting(JobQueue.LONG_CHANGES) == 2
    assert work.passes() == [
        ["long3", "short0", "long4"],
        ["long5", "long6", "long7"],
        ["long8", "next0"],
        [],
    ]


def test_a_step_that_takes_long_is_the_only_one_of_its_pass() -> None:
    work = Work()
    work.slices.submit(JobQueue.ANSWERS, work.job("slow", 3, step_s=0.05))
    work.slices.submit(JobQueue.CHANGES, work.job("a", 1))
    assert work.passes() == [["slow1"], ["a0", "slow2"], []]


def test_a_job_that_fails_ends_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> Generator[None, None, None]:
        yield
        raise RuntimeError("this one")

    work = Work()
    work.slices.submit(JobQueue.ANSWERS, work.job("first", 4))
    work.slices.submit(JobQueue.ANSWERS, fails())
    work.slices.submit(JobQueue.ANSWERS, work.job("last", 1))
    assert work.passes() == [["first3", "last0"], []]
    assert "this one" in caplog.text


def test_jobs_may_submit_jobs() -> None:
    work = Work()

    def submits() -> Generator[None, None, None]:
        yield
        work.slices.submit(JobQueue.CLEANING, work.job("c", 2))

    assert work.slices.submit(JobQueue.CHANGES, submits())
    assert work.done == ["c0", "c1"]
    assert not any(work.slices.waiting(queue) for queue in JobQueue)
