"""`rmq` without a process of its own; and a cluster that tests of admin commands share."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, TypeAlias

import pytest

from rmq.cli import main
from tests.cli.client_kit import environment, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.admin_kit import Rmq, RmqJson
    from tests.cli.client_kit import Processes

RunHere: TypeAlias = "Callable[..., tuple[int, str, str]]"


@pytest.fixture
def run_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> RunHere:
    """Run `rmq` as a user who has set nothing; return exit code, output and errors."""
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config of nobody"))

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        output, errors = capsys.readouterr()
        return code, output, errors

    return run


# --- a cluster ------------------------------------------------------------------------------
# A nameserver and a broker as processes, for all tests of admin commands. Each test has topics and
# groups of its own. Commands run in this process, as a user who has set only the nameserver.


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
