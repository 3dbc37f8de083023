"""The properties of messages that were sent again by a pipeline, see `copies`."""

from __future__ import annotations

from typing import Final

COPY_KEY: Final = "COPY_KEY"
"""Why and of what a copy was made; a copy that should be made once has it once."""
COPY_OF: Final = "COPY_OF"
"""The message id of the message that was sent first."""

REPLAY: Final = "replay/"
REDRIVE: Final = "redrive/"
"""How keys of copies begin, by the pipeline that made them."""
