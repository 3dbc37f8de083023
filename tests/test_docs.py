"""The examples in the documentation run, and print what they say they print."""

from __future__ import annotations

import re
from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.paths import DOCS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", ["remoting.md", "store.md"])
async def test_the_example_of_a_guide_prints_what_it_says(
    page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DOCS / page).read_text()
    code, printed = re.findall(r"```(?:python)?\n(.*?)```", text, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    main = scope["main"]
    with trio.fail_after(10):
        await (main(tmp_path / "store") if signature(main).parameters else main())
    assert capsys.readouterr().out == printed
