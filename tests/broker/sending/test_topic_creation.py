"""Topics that come into being because somebody sends to them: saved first, in order, once."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio
from trio.testing import wait_all_tasks_blocked

from rmq.broker.sending.topic_creation import (
    CREATED_AT_ONCE,
    WISHES_LEFT_MAX,
    TopicCreation,
)
from rmq.broker.tables.writer import TableWriter
from rmq.errors import StorageError
from tests.broker.tables.table_kit import topic_table
from tests.broker.tables.writer_kit import WatchedFile
from tests.remoting.server_kit import Logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import pytest

    from rmq.remoting.bodies import TopicConfig


class Creation:
    """A creation at work on a table of topics, and what became of the wishes."""

    def __init__(self, folder: Path) -> None:
        self.topics = topic_table()
        self.file = WatchedFile(folder)
        self.writer = TableWriter(self.file, self.topics.render, "topics")
        self.creation = TopicCreation(self.writer)
        self.done: list[tuple[str, str | None]] = []

    def wish(
        self,
        name: str,
        topic: str = "New",
        create: Callable[[], TopicConfig | None] | None = None,
    ) -> None:
        """Ask for a topic; `done` tells when that ended, and how."""

        def then(error: Exception | None) -> None:
            self.done.append((name, None if error is None else str(error)))

        self.creation.submit(
            topic, create or (lambda: self.topics.create_on_send(topic, "TBW102", 4, 0)), then
        )

    def saved_topics(self) -> str:
        return self.file.text or ""


@asynccontextmanager
async def creating(folder: Path) -> AsyncIterator[Creation]:
    kit = Creation(folder)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kit.writer.run, None)
            nursery.start_soon(kit.creation.run)
            try:
                yield kit
            finally:
                kit.file.let_go()
                nursery.cancel_scope.cancel()


async def finish(kit: Creation, count: int) -> None:
    while len(kit.done) < count:
        await trio.lowlevel.checkpoint()


async def test_who_asks_is_called_when_the_topic_is_in_its_file(tmp_path: Path) -> None:
    async with creating(tmp_path) as kit:
        kit.file.hold()
        kit.wish("first")
        assert kit.creation.is_under_way("New")
        await wait_all_tasks_blocked()
        assert kit.topics.get("New") is not None
        assert (kit.done, kit.saved_topics()) == ([], "")
        assert kit.creation.is_under_way("New")
        kit.file.let_go()
        await finish(kit, 1)
        assert kit.done == [("first", None)]
        assert '"New"' in kit.saved_topics()
        assert not kit.creation.is_under_way("New")


async def test_those_who_ask_for_one_topic_are_called_in_order_after_one_write(
    tmp_path: Path,
) -> None:
    async with creating(tmp_path) as kit:
        kit.file.hold()
        for name in "abc":
            kit.wish(name)
        await wait_all_tasks_blocked()
        for name in "def":
            kit.wish(name)
        await wait_all_tasks_blocked()
        kit.file.let_go()
        await finish(kit, 6)
        assert [name for name, _ in kit.done] == list("abcdef")
        assert kit.file.attempts == 1


async def test_a_topic_that_is_asked_for_all_the_time_is_ready_after_one_write(
    tmp_path: Path,
) -> None:
    # Somebody who always asks again must not keep it under way, and its file being written.
    async with creating(tmp_path) as kit:
        asked = 0
        while not kit.done or kit.creation.is_under_way("New"):
            kit.wish(str(asked))
            asked += 1
            await trio.lowlevel.checkpoint()
        assert [name for name, _ in kit.done] == [str(number) for number in range(asked)]
        assert kit.file.attempts == 1


async def test_who_asks_for_another_topic_meanwhile_waits_for_that_one(tmp_path: Path) -> None:
    async with creating(tmp_path) as kit:
        kit.file.hold()
        kit.wish("a", "A")
        await wait_all_tasks_blocked()
        kit.wish("b", "B")
        kit.wish("a again", "A")
        await wait_all_tasks_blocked()
        assert kit.topics.get("B") is None
        kit.file.let_go()
        await finish(kit, 2)
        assert kit.done == [("a", None), ("a again", None)]
        assert not kit.creation.is_under_way("A")
        assert kit.creation.is_under_way("B")
        await finish(kit, 3)
        assert '"B"' in kit.saved_topics()
        assert not kit.creation.is_under_way("B")


async def test_a_topic_that_may_not_be_made_is_not_waited_for(tmp_path: Path) -> None:
    async with creating(tmp_path) as kit:
        kit.wish("refused", create=lambda: None)
        await wait_all_tasks_blocked()
        assert kit.done == [("refused", None)]
        assert kit.file.attempts == 0
        assert not kit.creation.is_under_way("New")


# --- a file that cannot be written -----------------------------------------------------------


def failure() -> StorageError:
    return StorageError("write", "topics.json", "No space left on device")


async def test_who_asks_is_told_that_the_topic_was_not_saved(tmp_path: Path) -> None:
    async with creating(tmp_path) as kit:
        kit.file.error = failure()
        kit.wish("first")
        await finish(kit, 1)
        assert kit.done == [("first", "cannot write topics.json: No space left on device")]


async def test_a_topic_that_was_not_saved_stays_under_way_until_it_is(tmp_path: Path) -> None:
    async with creating(tmp_path) as kit:
        kit.file.error = failure()
        kit.wish("first")
        await finish(kit, 1)
        assert kit.topics.get("New") is not None
        assert kit.creation.is_under_way("New"), "a message would be taken for it"
        kit.wish("second")
        await finish(kit, 2)
        assert kit.done[1][1] is not None
        kit.file.error = None
        kit.wish("third")
        await finish(kit, 3)
        assert kit.done[2] == ("third", None)
        assert '"New"' in kit.saved_topics()
        assert not kit.creation.is_under_way("New")


async def test_a_topic_that_is_saved_later_needs_nobody_to_be_refused_first(
    tmp_path: Path,
) -> None:
    async with creating(tmp_path) as kit:
        kit.file.error = failure()
        kit.wish("first")
        await finish(kit, 1)
        kit.file.error = None
        await kit.writer.save_now()
        kit.wish("second")
        await finish(kit, 2)
        assert kit.done[1] == ("second", None)
        assert not kit.creation.is_under_way("New")


async def test_a_failed_write_concerns_only_topics_that_were_made(tmp_path: Path) -> None:
    async with creating(tmp_path) as kit:
        kit.file.error = failure()
        kit.wish("made", "A")
        kit.wish("refused", "B", create=lambda: None)
        await finish(kit, 2)
        assert kit.done[0][1] is not None
        assert kit.done[1] == ("refused", None)
        assert not kit.creation.is_under_way("B")


# --- what must not happen --------------------------------------------------------------------


async def test_one_who_fails_does_not_keep_the_others_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with creating(tmp_path) as kit:

        def fail(_error: Exception | None) -> None:
            raise RuntimeError("broken")

        kit.creation.submit("New", lambda: None, fail)
        kit.wish("next")
        await finish(kit, 1)
        assert kit.done == [("next", None)]
        assert Logs(caplog).lines == ["callback for the creation of topic New raised"]


async def test_a_creation_that_fails_is_told_to_who_asked_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with creating(tmp_path) as kit:

        def broken() -> TopicConfig:
            raise RuntimeError("broken")

        kit.wish("first", "Bad", create=broken)
        kit.wish("next")
        await finish(kit, 2)
        assert kit.done == [("first", "broken"), ("next", None)]
        assert not kit.creation.is_under_way("Bad")
        assert Logs(caplog).lines == ["topic Bad could not be created"]


class Turns(trio.abc.Instrument):
    """Counts how often the task of a creation was given its turn."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += "TopicCreation.run" in task.name


async def test_many_topics_are_created_in_steps(tmp_path: Path) -> None:
    async with creating(tmp_path) as kit:
        count = 10 * CREATED_AT_ONCE
        for number in range(count):
            kit.wish(str(number), f"New{number}")
        turns = Turns()
        trio.lowlevel.add_instrument(turns)
        await finish(kit, count)
        trio.lowlevel.remove_instrument(turns)
        assert turns.count > 10
        assert [name for name, _ in kit.done] == [str(number) for number in range(count)]


async def test_many_who_ask_for_one_topic_go_on_in_steps_and_in_order(tmp_path: Path) -> None:
    async with creating(tmp_path) as kit:
        kit.file.hold()
        count = 4 * WISHES_LEFT_MAX
        for number in range(count):
            kit.wish(str(number))
        await wait_all_tasks_blocked()
        kit.file.let_go()
        while not kit.done:
            await trio.lowlevel.checkpoint()
        assert len(kit.done) < count
        # It counts as under way as long as one of them waits: what comes now comes last.
        assert kit.creation.is_under_way("New")
        kit.wish("last")
        await finish(kit, count + 1)
        assert [name for name, _ in kit.done] == [*map(str, range(count)), "last"]
        assert not kit.creation.is_under_way("New")
