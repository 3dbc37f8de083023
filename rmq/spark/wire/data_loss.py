"""Messages that a query should have read and that are not there: any more, or at the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.errors import RmqError
from rmq.spark.wire.positions import name_of, names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmq.model.queues import MessageQueue

_SHOWN_MAX: Final = 5
HINT: Final = (
    "if that is known and fine, set failOnDataLoss=false: what is missing is then logged and"
    " skipped"
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


class QueuesAwayError(RmqError):
    """Queues cannot be read at the moment, and are not known to be gone. Nothing is lost
    yet, so this is an error whatever `failOnDataLoss` says.
    """

    hint = (
        "start it again, or promote its slave, and run the query again with the same checkpoint;"
        " if it never comes back, start again with another checkpointLocation and"
        " startingOffsets that name the queues that are left"
    )

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = tuple(sorted(queues))
        super().__init__(
            f"cannot be read at the moment: {names_of(self.queues)}; the broker is away, or the"
            f" topic has no read permission there; {self.hint}"
        )
