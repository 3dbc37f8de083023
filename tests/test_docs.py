"""The examples in the documentation run, and print what they say they print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"


async def test_the_example_of_the_remoting_guide_prints_what_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (DOCS / "remoting.md").read_text()
    code, printed = re.findall(r"```(?:python)?\n(.*?)```", text, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    with trio.fail_after(10):
        await scope["main"]()
    assert capsys.readouterr().out == printed
