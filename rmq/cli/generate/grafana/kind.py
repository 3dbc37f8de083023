"""`rmq generate grafana`: dashboards, and what provisions them."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Final

from rmq.cli.common.usage import UsageError
from rmq.cli.generate.grafana.rendering import dashboard_text
from rmq.cli.generate.kind import GeneratedFile, Kind
from rmq.cli.generate.templates import fill, template

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

    from rmq.cli.generate.deployment import Deployment
    from rmq.cli.generate.grafana.dashboard import Dashboard

DASHBOARDS: Final = ("overview", "replication", "store", "consumers", "clients", "pipelines")
"""In the order of the menu; each is a module beside this one."""
_PROVISIONING: Final = {
    "provisioning/dashboards/rmq.yaml": "grafana-dashboards.yaml",
    "provisioning/datasources/rmq.yaml": "grafana-datasource.yaml",
}
PROMETHEUS: Final = "http://prometheus:9090"
FOLDER: Final = "/var/lib/grafana/dashboards"
_URL: Final = re.compile(r"https?://[\w.:/\[\]~%+-]+", re.ASCII)
_PATH: Final = re.compile(r"/[\w./-]+", re.ASCII)


def load_dashboards() -> list[Dashboard]:
    """Load all dashboards, in the order of the menu."""
    package = __name__.rpartition(".")[0]
    found: list[Dashboard] = [import_module(f"{package}.{name}").DASHBOARD for name in DASHBOARDS]
    return found


def _files(deployment: Deployment, args: Namespace) -> Iterable[GeneratedFile]:
    if not _URL.fullmatch(args.prometheus):
        raise UsageError(f"--prometheus {args.prometheus!r} is not http(s)://HOST:PORT")
    if not _PATH.fullmatch(args.folder):
        raise UsageError(f"--folder {args.folder!r} is not an absolute path without blanks")
    if args.runbooks and not _URL.fullmatch(args.runbooks):
        raise UsageError(f"--runbooks {args.runbooks!r} is not http(s)://HOST/PAGE")
    for dashboard in load_dashboards():
        if args.dashboard is None or dashboard.file == f"{args.dashboard}.json":
            yield GeneratedFile(dashboard.file, dashboard_text(dashboard, args.runbooks))
    if args.dashboard is None:
        values = {"prometheus": args.prometheus, "folder": args.folder}
        for path, name in _PROVISIONING.items():
            yield GeneratedFile(path, fill(template(name), values))


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dashboard", choices=DASHBOARDS, help="only this one (default: all)")
    parser.add_argument(
        "--prometheus", default=PROMETHEUS, metavar="URL", help="the data source (%(default)s)"
    )
    parser.add_argument(
        "--folder", default=FOLDER, metavar="PATH", help="where Grafana finds them (%(default)s)"
    )
    parser.add_argument(
        "--runbooks",
        default="",
        metavar="URL",
        help="where the page about alerts is found, for links in panels (default: no links)",
    )


KIND: Final = Kind(
    name="grafana",
    help="dashboards for Grafana, and what provisions them",
    description="Dashboards for Grafana 10.4 and later, the same for all deployments: what is shown"
    " is chosen in\nGrafana. With them come files for Grafana's provisioning folder.",
    files=_files,
    add_arguments=_add_arguments,
    is_filled_in=False,
)
