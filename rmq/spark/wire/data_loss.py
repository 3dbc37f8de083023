"""Messages that a query should have read and that are not there any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.errors import RmqError
from rmq.spark.wire.positions import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.model.queues import MessageQueue

_SHOWN_MAX: Final = 5
HINT: Final = (
    "if that is known and fine, set failOnDataLoss=false: what is missing is then logged and"
    " passed over"
)


class Loss(NamedTuple):
    """What is missing in one queue, and why."""

    queue: MessageQueue
    what: str

    def __str__(self) -> str:
        return f"{name_of(self.queue)}: {self.what}"


class DataLossError(RmqError):
    """Messages are missing, and `failOnDataLoss` is set. The text holds the hint, too: errors
    come through Spark as text.
    """

    hint = HINT

    def __init__(self, losses: Sequence[Loss]) -> None:
        shown = "; ".join(map(str, losses[:_SHOWN_MAX]))
        more = f" (and {len(losses) - _SHOWN_MAX} more)" if len(losses) > _SHOWN_MAX else ""
        super().__init__(f"messages are missing: {shown}{more}; {HINT}")
        self.losses = tuple(losses)
