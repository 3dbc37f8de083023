"""Tables: as wide as a terminal, plain for other programs, and never obeyed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from rmq.cli.common.tables import BAD, Column, Styled, print_facts, print_table

SHOW = """
from rmq.cli.common.tables import *
print_table(
    ("NAME", Column("LAG", True), "STATE"),
    [("topic-" * 20, 1234567, Styled("failed", BAD)), ("b", None, "[bold]fine")],
)
"""


def test_lines_for_programs_are_whole_and_plain(capsys: pytest.CaptureFixture[str]) -> None:
    name = "topic-" * 40
    print_table(("NAME", Column("LAG", True)), [(name, 1234567), ("b", Styled("-", BAD))])
    print_facts([("name", "x\x1b[2Jy"), ("none", None)])
    head, first, second, *facts = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "LAG"]
    assert len(head) == len(first)
    assert first == f"{name}  1,234,567"
    assert second.split() == ["b", "-"]
    assert facts == ["name  x\\x1b[2Jy", "none  -"]


@pytest.mark.parametrize(
    ("environ", "is_coloured"),
    [pytest.param({}, True, id="as it is"), pytest.param({"NO_COLOR": "1"}, False, id="no colour")],
)
def test_a_terminal_gets_colour_and_lines_that_fit(
    environ: dict[str, str], is_coloured: bool
) -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    plain = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-c", SHOW], stdout=follower, env={**plain, "TERM": "xterm", **environ}
    ) as process:
        os.close(follower)
        output = b""
        try:
            while part := os.read(leader, 65536):
                output += part
        except OSError:
            pass  # the other end is closed
        finally:
            os.close(leader)
    assert process.returncode == 0
    text = output.decode()
    assert ("\x1b[1;31mfailed" in text) is is_coloured
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(map(len, lines)) <= 80
    # A long name is folded, not cut; what looks like markup is text.
    assert "".join(line[:70].split()[0] for line in lines[1:-1]).count("topic-") >= 15
    assert lines[-1].endswith("[bold]fine")
