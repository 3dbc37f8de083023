"""The error of a command line that the parser lets through, but that cannot be meant."""

from __future__ import annotations

from rmq.errors import RmqError


class UsageError(RmqError):
    """The command line says too little, or contradicts itself."""
