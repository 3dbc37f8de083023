"""`rmq bundle`: what other commands print, metrics, settings and logs in one archive."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import sys
import tarfile
import time
import urllib.request
from contextlib import redirect_stderr, redirect_stdout
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import rmq
from rmq.cli.admin.session import print_found
from rmq.cli.app import program
from rmq.cli.program import Chosen, parse
from rmq.errors import ConfigError, RmqError
from rmq.model.names import NAMESERVERS_VARIABLE
from rmq.model.words import count_text, size_text
from rmq.settings.properties_file import read_members
from rmq.settings.setting import MASK

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LOG_BYTES_MAX: Final = 4 * 1024**2
METRICS_BYTES_MAX: Final = 32 * 1024**2
METRICS_S: Final = 5.0
_COMMANDS: Final = (
    ("cluster",),
    ("topic", "list", "--all"),
    ("group", "list", "--all"),
    ("client", "list"),
    ("dlq", "list"),
    ("config", "get"),
    ("ha", "status"),
)
"""What is run against a cluster; each becomes a file of its name."""
_SHARED: Final = (
    "nameservers",
    "credentials",
    "access_key",
    "secret_key",
    "tls",
    "tls_trust",
    "tls_check_host",
    "tls_cert",
    "tls_key",
    "timeout",
)
"""Parameters that these commands get from this one."""
_SECRET: Final = re.compile(r".*(secret|password|accessKey).*", re.IGNORECASE)
"""Keys whose values are masked, of stock brokers, too."""


def run(args: Namespace) -> int:
    """Write the archive."""
    # What cannot be read is found out before anything is asked.
    kept = dict(_of_this_machine(args))
    files = {"about.json": _json(_about()), **kept, "doctor.json": _output(args, "doctor")}
    if args.nameservers is not None or os.environ.get(NAMESERVERS_VARIABLE):
        for words in _COMMANDS:
            name = "-".join(word for word in words if not word.startswith("--"))
            files[f"{name}.json"] = _output(args, *words)
        settings = _parsed(files["config-get.json"])
        files["config-get.json"] = _json(_masked(settings))
        files |= _metrics(settings)
    try:
        with args.file.open("xb") as target:
            _write(target, files)
    except FileExistsError:
        raise ConfigError("FILE", f"{args.file} exists: name another one") from None
    except OSError as exc:
        raise ConfigError("FILE", f"{args.file}: {exc.strerror}") from exc
    size = args.file.stat().st_size
    found = {"file": str(args.file), "bytes": size, "members": sorted(files)}

    def show() -> None:
        print(f"{args.file}: {count_text(len(files), 'file')}, {size_text(size)}")
        for name in sorted(files):
            print(f"  {name}")

    return print_found(args, found, show)


def _about() -> dict[str, Any]:
    versions = {}
    for requirement in metadata.requires("rmq") or ():
        name = re.split(r"[<>=!~;\[ ]", requirement, maxsplit=1)[0]
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "rmq": rmq.__version__,
        "protocol": rmq.PROTOCOL_VERSION,
        "python": sys.version,
        "platform": platform.platform(),
        "packages": versions,
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _of_this_machine(args: Namespace) -> Iterator[tuple[str, bytes]]:
    if args.config is not None:
        yield f"files/{args.config.name}", _settings_text(args.config).encode()
    for path in args.log_files:
        try:
            with path.open("rb") as log:
                log.seek(max(0, path.stat().st_size - LOG_BYTES_MAX))
                yield f"files/{path.name}", log.read(LOG_BYTES_MAX)
        except OSError as exc:
            raise ConfigError("--log", f"{path}: {exc.strerror}") from exc


def _settings_text(path: Path) -> str:
    try:
        members = list(read_members(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError("-c", f"{path}: {exc}") from exc
    return "".join(
        f"{each.key}={MASK if _SECRET.fullmatch(each.key) and each.value else each.value}\n"
        for each in members
    )


def _output(args: Namespace, *words: str) -> bytes:
    """Return what a command prints with --json, or what it fails with."""
    chosen = parse(program(), [*words, "--json"])
    assert isinstance(chosen, Chosen), words
    for name in _SHARED:
        setattr(chosen.args, name, getattr(args, name))
    chosen.args.config = args.config if words == ("doctor",) else None
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        try:
            chosen.command.load()(chosen.args)
        except RmqError as exc:
            errors.write(f"{exc}\n")
    text = output.getvalue() or _json({"error": errors.getvalue()}).decode()
    return text.encode()


def _parsed(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def _masked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what brokers say of their settings, without secrets: those of stock ones do."""
    brokers = [
        {
            **broker,
            "settings": {
                key: MASK if _SECRET.fullmatch(key) and value else value
                for key, value in broker["settings"].items()
            },
        }
        for broker in settings.get("brokers", ())
    ]
    return {**settings, "brokers": brokers}


def _metrics(settings: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the metrics of brokers that can be reached from here."""
    found = {}
    for broker in settings.get("brokers", ()):
        port = str(broker["settings"].get("metricsPort", "0"))
        host = broker["address"].rpartition(":")[0]
        if not port.isdecimal() or port == "0":
            continue
        url = f"http://{host}:{port}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=METRICS_S) as answer:
                text = answer.read(METRICS_BYTES_MAX)
        except (OSError, ValueError) as exc:
            text = f"# {url}: {exc}\n".encode()
        found[f"metrics/{broker['address'].replace(':', '_')}.txt"] = text
    return found


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _write(target: io.BufferedWriter, files: Mapping[str, bytes]) -> None:
    now = int(time.time())
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"rmq-bundle/{name}")
            entry.size, entry.mtime = len(content), now
            archive.addfile(entry, io.BytesIO(content))
