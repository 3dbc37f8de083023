"""Log lines that brokers and nameservers have in common."""

from __future__ import annotations

import logging
import os
import platform
from typing import TYPE_CHECKING

import rmq

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger(__name__)


def process_name(name: str, port: int) -> str:
    """Return how log lines name this process: by its port, or its number where that is free."""
    return f"{name}@{port or f'process-{os.getpid()}'}"


def log_version() -> None:
    """Say which program this is."""
    logger.info(
        "rmq %s (RocketMQ protocol %s), Python %s, process %d",
        rmq.__version__,
        rmq.PROTOCOL_VERSION,
        platform.python_version(),
        os.getpid(),
    )


def log_reload(applied: Sequence[str], needs_restart: Sequence[str]) -> None:
    """Say what SIGHUP has changed."""
    if not applied and not needs_restart:
        logger.info("settings reloaded: nothing has changed")
        return
    restart = f"; after a restart: {', '.join(sorted(needs_restart))}" if needs_restart else ""
    logger.info("settings reloaded, in force: %s%s", ", ".join(sorted(applied)) or "none", restart)
