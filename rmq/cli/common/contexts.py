"""Clusters that a user has named: addresses, account and encryption in one word.

They are in `config.toml` in the folder `rmq` of the user's configuration (`$XDG_CONFIG_HOME`, else
`~/.config`):

    current = "production"

    [contexts.production]
    nameservers = "10.0.0.5:9876;10.0.0.6:9876"
    credentials = "/etc/rmq/tools.yml"
    tls_trust = "/etc/rmq/ca.pem"

A context counts if it is named (`--context`, `$RMQ_CONTEXT`), or if it is the current one and
neither options nor `$NAMESRV_ADDR` name a cluster. Options of the command line count before it.
Secrets are not kept here: `credentials` names a file.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmq.cli.common.usage import UsageError
from rmq.errors import ConfigError
from rmq.files import replace_file
from rmq.model.names import NAMESERVERS_VARIABLE

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

CONTEXT_VARIABLE: Final = "RMQ_CONTEXT"
FIELDS: Final[Mapping[str, type]] = {
    "nameservers": str,
    "credentials": Path,
    "tls": bool,
    "tls_trust": Path,
    "tls_check_host": bool,
    "tls_cert": Path,
    "tls_key": Path,
}
"""What a context may say, each under the name of its option."""

Context = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts of a user."""

    path: Path
    current: str | None = None
    known: dict[str, Context] = field(default_factory=dict)

    def find(self, name: str) -> Context:
        """Return a context; raise `UsageError`."""
        if name in self.known:
            return self.known[name]
        close = get_close_matches(name, self.known, 1)
        known = ", ".join(sorted(self.known)) or "none"
        raise UsageError(
            f"there is no context {name!r} in {self.path}: "
            + (f"did you mean {close[0]!r}?" if close else f"known: {known}")
        )


def config_path(environ: Mapping[str, str]) -> Path:
    """Return where the contexts of a user are."""
    folder = environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "rmq" / "config.toml"


def load_contexts(environ: Mapping[str, str]) -> Contexts:
    """Read all contexts; none if there is no file. Raises `ConfigError`."""
    path = config_path(environ)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Contexts(path)
    except OSError as exc:
        raise ConfigError(str(path), f"cannot be read: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(str(path), f"is no TOML: {exc}") from exc
    current, tables = document.get("current"), document.get("contexts", {})
    if not isinstance(tables, dict) or not isinstance(current, str | None):
        raise ConfigError(str(path), "current is a name, and contexts are tables")
    return Contexts(path, current, {name: _checked(path, name, tables[name]) for name in tables})


def _checked(path: Path, name: str, table: object) -> Context:
    if not isinstance(table, dict):
        raise ConfigError(str(path), f"contexts.{name} is no table")
    context: Context = {}
    for key, value in table.items():
        kind = FIELDS.get(key)
        if kind is None:
            raise ConfigError(
                str(path), f"contexts.{name}.{key} is unknown; known: {', '.join(FIELDS)}"
            )
        written = str if kind is Path else kind
        if not isinstance(value, written):
            word = "true or false" if kind is bool else "text"
            raise ConfigError(str(path), f"contexts.{name}.{key} is not {word}")
        context[key] = kind(value)
    return context


def save_contexts(contexts: Contexts) -> None:
    """Write the file; comments that are in it stay. Raises `ConfigError`."""
    import tomlkit

    path = contexts.path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        document = tomlkit.parse(text)
        if contexts.current is None:
            document.pop("current", None)
        else:
            document["current"] = contexts.current
        tables = document.setdefault("contexts", tomlkit.table(is_super_table=True))
        for name in set(tables) - set(contexts.known):
            del tables[name]
        for name, context in contexts.known.items():
            written = {
                key: str(value) if isinstance(value, Path) else value
                for key, value in context.items()
            }
            if tables.get(name) != written:
                tables[name] = written
        replace_file(path, tomlkit.dumps(document))
    except OSError as exc:
        raise ConfigError(str(path), f"cannot be written: {exc.strerror}") from exc


def apply_context(args: Namespace, environ: Mapping[str, str]) -> None:
    """Fill in what a command line leaves to the context; raise `UsageError` or `ConfigError`."""
    named = args.context or environ.get(CONTEXT_VARIABLE)
    if named is None:
        has_cluster = args.nameservers is not None or getattr(args, "broker", None) is not None
        if has_cluster or environ.get(NAMESERVERS_VARIABLE):
            return
    contexts = load_contexts(environ)
    name = named or contexts.current
    if name is None:
        return
    for key, value in contexts.find(name).items():
        if key == "credentials" and (args.access_key or args.secret_key):
            continue
        # Options that were not given are None, and False for flags.
        if not getattr(args, key, None):
            setattr(args, key, value)
