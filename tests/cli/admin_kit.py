"""What tests of admin commands share beside their fixtures."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from rmq.client.blocking import BlockingAdmin
from rmq.client.core.flows import ask
from rmq.remoting.codes import RequestCode
from tests.nameserver.kit import register_body, register_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmq.nameserver.registration import Registration
    from tests.cli.client_kit import Processes

Rmq: TypeAlias = "Callable[..., tuple[int, str, str]]"
RmqJson: TypeAlias = "Callable[..., Any]"


@contextmanager
def registered(processes: Processes, said: Registration) -> Iterator[None]:
    """Have the nameserver list another broker for the length of a block."""
    with BlockingAdmin(processes.nameserver) as admin:
        body = register_body(said).encode()
        admin.run(
            ask(
                processes.nameserver,
                RequestCode.REGISTER_BROKER,
                register_header(said),
                body=body,
            )
        )
        yield
