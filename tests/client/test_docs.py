"""The examples of docs/client.md run as they stand, and print what they say they print."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

import rmq.client
from rmq.client import aio
from tests.client.cluster_kit import cluster
from tests.client.settings_page import page
from tests.paths import DOCS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE: Final = DOCS / "client.md"
ADDRESS: Final = "127.0.0.1:9876"
_EXAMPLE: Final = re.compile(
    r"^##+ (?P<title>[^\n]+)\n(?:(?!^##).)*?```python\n(?P<code>.*?)```\n```\n(?P<output>.*?)```",
    re.DOTALL | re.MULTILINE,
)
EXAMPLES: Final = [match.groupdict() for match in _EXAMPLE.finditer(PAGE.read_text())]


def test_the_page_of_settings_is_what_the_code_says() -> None:
    assert (DOCS / "client-settings.md").read_text() == page(), (
        "run: python -m tests.client.settings_page > docs/client-settings.md"
    )


def test_names_that_are_exported_are_there_and_the_same_on_both_loops() -> None:
    assert rmq.client.__all__ == aio.__all__
    for name in rmq.client.__all__:
        assert getattr(rmq.client, name) is not None
        assert getattr(aio, name) is not None
        assert name in dir(aio)


def test_every_example_is_found() -> None:
    assert len(EXAMPLES) == PAGE.read_text().count("```python")


@pytest.mark.parametrize("example", EXAMPLES, ids=[each["title"] for each in EXAMPLES])
async def test_an_example_prints_what_it_says(
    example: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The last line runs it; the test does that itself, where it has a loop already.
    code, _, last = example["code"].rstrip().rpartition("\n")
    assert last in ("trio.run(main)", "main()")
    async with cluster(tmp_path, enablePropertyFilter="true") as it:
        scope: dict[str, Any] = {}
        exec(code.replace(ADDRESS, it.nameserver), scope)
        main: Callable[[], Any] = scope["main"]
        with trio.fail_after(40):
            if inspect.iscoroutinefunction(main):
                await main()
            else:
                await trio.to_thread.run_sync(main)
    assert capsys.readouterr().out == example["output"]
