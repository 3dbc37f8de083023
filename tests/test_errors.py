"""The tree that `rmq.errors` draws is the tree of the classes."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import rmq
from rmq import errors

PACKAGE = Path(rmq.__file__).parent


@cache
def declared_errors() -> dict[str, tuple[str, Path]]:
    """The base of every subclass of `RmqError` in rmq/, and the module it is declared in."""
    classes: list[tuple[str, str, Path]] = []
    for module in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ClassDef) and node.bases:
                base = ast.unparse(node.bases[0]).rpartition(".")[2]
                classes.append((node.name, base, module.relative_to(PACKAGE)))
    tree: dict[str, tuple[str, Path]] = {}
    found = {"RmqError"}
    while found:
        below = [each for each in classes if each[1] in found]
        for name, base, path in below:
            assert name not in tree, f"two errors are called {name}"
            tree[name] = base, path
        found = {name for name, _, _ in below}
    return tree


def drawn_errors() -> dict[str, tuple[str, str]]:
    """The base of every error of the drawing, and what is said of it."""
    assert errors.__doc__ is not None
    drawn: dict[str, tuple[str, str]] = {}
    path = ["RmqError"]
    for line in errors.__doc__.splitlines():
        if match := re.fullmatch(r"((?:[|`] {2}| {3})*)[|`]- (\w+) +(\S.*)", line):
            depth = len(match[1]) // 3 + 1
            path[depth:] = [match[2]]
            assert match[2] not in drawn, f"{match[2]} is drawn twice"
            drawn[match[2]] = path[depth - 1], match[3]
    return drawn


def test_every_error_is_in_the_tree_below_its_base_and_no_other_is() -> None:
    declared = {name: base for name, (base, _) in declared_errors().items()}
    assert len(declared) > 50
    assert {name: base for name, (base, _) in drawn_errors().items()} == declared


def test_the_tree_names_the_package_of_an_error_that_is_declared_elsewhere() -> None:
    wrong = []
    for name, (_, module) in declared_errors().items():
        named = re.match(r"\[(\w+)\]", drawn_errors()[name][1])
        if (named[1] if named else "errors") != module.parts[0].removesuffix(".py"):
            wrong.append(f"{name} is declared in {module}")
    assert wrong == []


def test_what_applications_meet_says_its_hint_once() -> None:
    route = errors.NoRouteError("n:1", "T", "no broker has it", hint="create it")
    failed = errors.SendFailedError("T", [("a", route), ("b", route)], may_be_stored=False)
    several = errors.BrokersFailedError("the change", [("a", route)], ["b"])
    for error in (route, failed, several):
        assert str(error) == error.with_hint == f"{error.text} (create it)"
        assert str(errors.to_keep(error)) == str(error)
    assert str(errors.ConfigError("group", "none is given", hint="name it")).endswith("(name it)")
    assert str(errors.IllegalMessageError("no body")) == "no body"


def test_an_error_to_keep_is_the_same_without_the_frames_it_passed_through() -> None:
    def fail() -> None:
        try:
            raise ValueError("why")
        except ValueError as exc:
            raise errors.StorageError("write", "/x", "no room", hint="make some") from exc

    with pytest.raises(errors.StorageError) as caught:
        fail()
    kept = errors.to_keep(caught.value)
    assert type(kept) is errors.StorageError
    assert (str(kept), kept.path, kept.hint) == ("cannot write /x: no room", "/x", "make some")
    assert (kept.__traceback__, kept.__cause__, kept.__context__) == (None, None, None)
    assert caught.value.__traceback__ is not None, "the one on its way is left alone"
