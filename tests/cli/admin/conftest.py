"""A cluster that tests of admin commands share: a nameserver and a broker as processes.

Each test has topics and groups of its own. Commands run in this process, as a user who has set
nothing but the nameserver.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from rmq.cli import main
from rmq.client.blocking import BlockingAdmin
from rmq.client.core.flows import ask
from rmq.remoting.codes import RequestCode
from tests.cli.client_kit import environment, running
from tests.nameserver.kit import register_body, register_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmq.nameserver.registration import Registration
    from tests.cli.client_kit import Processes

Rmq: TypeAlias = "Callable[..., tuple[int, str, str]]"
RmqJson: TypeAlias = "Callable[..., Any]"


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with running(tmp_path_factory.mktemp("admin"), brokerName="broker-a") as processes:
        yield processes


@pytest.fixture
def rmq(
    processes: Processes,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Rmq:
    """Run `rmq`; return exit code, output and errors."""
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    monkeypatch.setenv("NAMESRV_ADDR", processes.nameserver)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        output, errors = capfd.readouterr()
        return code, output, errors

    return run


@pytest.fixture
def rmq_json(rmq: Rmq) -> RmqJson:
    """Run `rmq ... --json`, which must succeed; return what it prints."""

    def run(*words: str) -> object:
        code, output, errors = rmq(*words, "--json")
        assert (code, errors) == (0, ""), output
        return json.loads(output)

    return run


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
