"""The levels of the log, for settings and command lines."""

from __future__ import annotations

from typing import Final

LEVELS: Final = ("debug", "info", "warning", "error")
