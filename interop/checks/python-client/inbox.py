"""Listeners for our push consumers: they keep what they get, and fail as often as they are told."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final, final

import trio
from our_messages import as_received

from interop.support.cases import MismatchError
from rmq.client.core.consuming.results import ConsumeResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interop.support.java_messages import Received
    from rmq.client.core.consuming.results import ListenerResult
    from rmq.client.core.received import ReceivedMessage

_TIMEOUT_S: Final = 20.0


@final
class Inbox:
    """Everything that a listener has got, each attempt on its own."""

    def __init__(
        self, name: str = "our consumer", *, failures: int = 0, answer: object = ConsumeResult.LATER
    ) -> None:
        """Each message fails `failures` times; `answer` is what the listener returns then."""
        self.name = name
        self.received: list[Received] = []
        self._failures = failures
        self._answer = answer
        self._next_answers: list[object] = []
        self._attempts: Counter[str] = Counter()
        self._changed = trio.Event()

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> ListenerResult:
        """Take messages; the result is that of the worst of them."""
        fails = False
        for message in messages:
            self._attempts[message.message_id] += 1
            attempt = self._attempts[message.message_id]
            now_ms = time.time_ns() // 1_000_000
            self.received.append(as_received(message, received_ms=now_ms, attempt=attempt))
            fails |= attempt <= self._failures
        self._changed.set()
        self._changed = trio.Event()
        answer = self._answer if fails else ConsumeResult.SUCCESS
        if self._next_answers:
            answer = self._next_answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]  # some cases answer nonsense

    def answer_next(self, answer: object) -> None:
        """Have the next call answer this, whatever it gets."""
        self._next_answers.append(answer)

    async def wait(self, count: int, *, timeout_s: float = _TIMEOUT_S) -> list[Received]:
        """Wait until at least `count` messages have come; return all that have."""
        with trio.move_on_after(timeout_s):
            while len(self.received) < count:
                await self._changed.wait()
        if len(self.received) < count:
            raise MismatchError(
                f"{self.name} got {len(self.received)} of {count} messages in {timeout_s:g} s"
            )
        return self.received
