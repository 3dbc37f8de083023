"""`rmq context`, and which cluster a command is for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmq.cli.common.contexts import apply_context, load_contexts
from rmq.cli.common.exit_codes import ExitCode
from rmq.errors import ConfigError
from tests.cli.parsing import args_of

if TYPE_CHECKING:
    from tests.cli.conftest import RunHere


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where contexts are; nothing is there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "rmq" / "config.toml"


def nameservers_of(*words: str, file: Path, **environ: str) -> str | None:
    """Return the cluster that a line is for."""
    args = args_of(*words)
    apply_context(args, {"XDG_CONFIG_HOME": str(file.parent.parent), **environ})
    return args.nameservers  # type: ignore[no-any-return]  # text or None


def test_names_are_kept_chosen_and_forgotten(run_here: RunHere, file: Path) -> None:
    assert run_here("context", "list") == (ExitCode.OK, "IN USE  NAME  NAMESERVERS\n", "")
    code, output, _ = run_here("context", "add", "prod", "-n", "a:1;b:2", "--tls-trust", "ca.pem")
    assert (code, output) == (ExitCode.OK, f"prod is in {file}, and in use\n")
    file.write_text(f"# ours\n{file.read_text()}")
    assert run_here("context", "add", "test", "-n", "c:3")[0] == ExitCode.OK
    assert run_here("context", "use", "test")[1] == "commands are for test now\n"
    assert json.loads(run_here("context", "list", "--json")[1]) == {
        "current": "test",
        "contexts": {
            "prod": {"nameservers": "a:1;b:2", "tls_trust": str(Path("ca.pem").absolute())},
            "test": {"nameservers": "c:3"},
        },
    }
    assert "*       test  c:3\n" in run_here("context", "list")[1]
    assert json.loads(run_here("context", "show", "--json")[1])["name"] == "test"
    # A comment that its owner wrote stays.
    assert file.read_text().startswith("# ours\n")
    code, _, errors = run_here("context", "use", "prodd")
    assert code == ExitCode.USAGE
    assert "did you mean 'prod'?" in errors
    assert run_here("context", "remove", "test")[1].endswith("no context is in use\n")
    assert set(load_contexts({"XDG_CONFIG_HOME": str(file.parent.parent)}).known) == {"prod"}
    code, _, errors = run_here("context", "add", "bad", "-n", "nowhere")
    assert code == ExitCode.USAGE
    assert "-n nowhere: " in errors


def test_a_context_counts_where_nothing_else_names_a_cluster(run_here: RunHere, file: Path) -> None:
    run_here("context", "add", "prod", "-n", "a:1", "--tls")
    run_here("context", "add", "test", "-n", "c:3")
    assert nameservers_of("cluster", file=file) == "a:1"
    assert nameservers_of("cluster", "-n", "x:9", file=file) == "x:9"
    assert nameservers_of("cluster", file=file, NAMESRV_ADDR="y:8") is None
    assert nameservers_of("cluster", file=file, NAMESRV_ADDR="y:8", RMQ_CONTEXT="test") == "c:3"
    assert nameservers_of("ha", "status", "-b", "h:1", file=file) is None
    assert nameservers_of("cluster", "--context", "test", file=file, RMQ_CONTEXT="prod") == "c:3"
    args = args_of("cluster", "--context", "prod", "-n", "x:9")
    apply_context(args, {"XDG_CONFIG_HOME": str(file.parent.parent)})
    assert (args.nameservers, args.tls) == ("x:9", True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("current = [", "is no TOML", id="syntax"),
        pytest.param("contexts = 1", "contexts are tables", id="no tables"),
        pytest.param("[contexts.a]\nsecret = 'x'", "contexts.a.secret is unknown", id="key"),
        pytest.param("[contexts.a]\ntls = 'yes'", "tls is not true or false", id="flag"),
    ],
)
def test_a_file_that_makes_no_sense_is_named_with_the_reason(
    text: str, reason: str, file: Path
) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(ConfigError, match=reason) as caught:
        load_contexts({"XDG_CONFIG_HOME": str(file.parent.parent)})
    assert str(file) in str(caught.value)
