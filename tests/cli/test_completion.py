"""`rmq completion`, and which words it completes."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from click.shell_completion import BashComplete

from rmq.cli.app import program
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.program import COMPLETION_VARIABLE

if TYPE_CHECKING:
    from tests.cli.conftest import RunHere


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_one(run_here: RunHere, shell: str) -> None:
    code, output, errors = run_here("completion", shell)
    assert (code, errors) == (ExitCode.OK, "")
    assert f"{COMPLETION_VARIABLE}={shell}_complete" in output
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=output, text=True, check=True)
    assert run_here("completion", "tcsh")[0] == ExitCode.USAGE


@pytest.mark.parametrize(
    ("words", "begun", "expected"),
    [
        pytest.param([], "gr", ["group"], id="command"),
        pytest.param(["ha"], "s", ["status", "switch"], id="action"),
        pytest.param(["ha", "switch"], "", ["sync", "async"], id="argument"),
        pytest.param(["topic", "create", "T", "--perm"], "r", ["rw", "r"], id="value"),
        pytest.param(["group", "reset"], "--dr", ["--dry-run"], id="option"),
        pytest.param(["admin"], "updateT", ["updateTopic", "updateTopicPerm"], id="mqadmin"),
        pytest.param(["generate"], "sys", ["systemd"], id="kind"),
        pytest.param(["pipeline", "report"], "--max-lag-", ["--max-lag-seconds"], id="pipeline"),
    ],
)
def test_words_are_completed(words: list[str], begun: str, expected: list[str]) -> None:
    completion = BashComplete(program(), {}, "rmq", COMPLETION_VARIABLE)
    assert [each.value for each in completion.get_completions(words, begun)] == expected
