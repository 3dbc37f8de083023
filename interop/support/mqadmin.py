"""The stock mqadmin, run by a driver of the stock Java client."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from interop.support.cases import MismatchError, expect_true

if TYPE_CHECKING:
    from interop.support.java_client import Driver


@final
@dataclass(frozen=True)
class Mqadmin:
    """Runs commands of mqadmin against a cluster."""

    tool: Driver
    nameserver: str

    async def run(self, command: str, *arguments: str) -> str:
        """Return what a command printed; it must not have printed any trace of a failure."""
        output, errors = await self._run(command, *arguments)
        if "Exception" in errors:
            raise MismatchError(f"mqadmin {command}: {_reason(errors)}")
        return output

    async def refused(self, command: str, *arguments: str) -> str:
        """Return why a command failed, as it must."""
        output, errors = await self._run(command, *arguments)
        if "Exception" not in errors:
            raise MismatchError(f"mqadmin {command} should have failed; it printed {output!r}")
        return _reason(errors)

    async def _run(self, command: str, *arguments: str) -> tuple[str, str]:
        printed = await self.tool.ask(
            "mqadmin", arguments=[command, "-n", self.nameserver, *arguments]
        )
        return printed["output"], printed["errors"]


def expect_in(wanted: str, output: str) -> None:
    expect_true(f"{wanted!r} in {output!r}", wanted in output)


def _reason(errors: str) -> str:
    # The cause says what happened, the exceptions around it only that something did.
    causes = re.findall(r"^Caused by: (.*)$", errors, re.MULTILINE)
    return str(causes[-1] if causes else errors.strip().splitlines()[0])
