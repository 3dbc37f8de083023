"""What others say of the files in `ops`: systemd, hadolint, schemas of Kubernetes and Compose."""

from __future__ import annotations

import getpass
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from jsonschema.validators import validator_for

from rmq.broker.config.schema import SCHEMA
from tests.cli.generate.generate_kit import generate
from tests.cli.parsing import chosen_by
from tests.paths import ROOT

OPS = ROOT / "ops"
BIN = Path(sys.executable).parent


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed: the units were not checked")
    program = BIN / "rmq"
    generate(tmp_path, "systemd", "--rmq", str(program), "--user", getpass.getuser())
    # A template is checked as one of its units.
    (tmp_path / "rmq-broker@.service").rename(tmp_path / "rmq-broker@broker-a.service")
    done = subprocess.run(
        [analyze, "verify", *tmp_path.glob("*.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    # What it says of units of the machine is not about ours.
    about_ours = [line for line in done.stderr.splitlines() if "rmq-" in line]
    assert (about_ours, done.returncode) == ([], 0)


def test_units_let_a_process_open_files_stop_in_order_and_write_its_state_alone() -> None:
    broker = (OPS / "systemd" / "rmq-broker@.service").read_text().splitlines()
    for line in (
        "Type=notify",
        "ExecStart=/opt/rmq/bin/rmq broker -c /etc/rmq/%i.conf",
        "LimitNOFILE=655350",
        "KillSignal=SIGTERM",
        "TimeoutStopSec=120",
        "Restart=on-failure",
        "RestartPreventExitStatus=2 3",
        "StateDirectory=rmq/%i",
        "ProtectSystem=strict",
        "NoNewPrivileges=yes",
    ):
        assert line in broker


def test_hadolint_finds_nothing_wrong_with_the_dockerfile() -> None:
    hadolint = shutil.which("hadolint", path=str(BIN)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("there is no hadolint for this machine: the Dockerfile was not checked")
    done = subprocess.run(
        [hadolint, OPS / "compose" / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("", 0)


def test_the_compose_file_is_one_by_its_schema() -> None:
    document = yaml.safe_load((OPS / "compose" / "compose.yaml").read_text())
    schema = get_builtin_schema("vendor.compose-spec")
    validator = validator_for(schema)(schema)
    assert [error.message for error in validator.iter_errors(document)] == []
    document["services"]["grafana"]["prots"] = []
    assert len(list(validator.iter_errors(document))) == 1


def test_what_services_of_the_compose_file_read_is_there() -> None:
    folder = OPS / "compose"
    document = yaml.safe_load((folder / "compose.yaml").read_text())
    for service in document["services"].values():
        for mount in service.get("volumes", ()):
            source = mount.partition(":")[0]
            assert (
                (folder / source).exists()
                if source.startswith(".")
                else source in document["volumes"]
            )
    prometheus = yaml.safe_load((folder / "prometheus.yml").read_text())
    targets = [
        target.partition(":")[0]
        for job in prometheus["scrape_configs"]
        for config in job["static_configs"]
        for target in config["targets"]
    ]
    assert set(targets) == set(document["services"]) - {"prometheus", "grafana"}
    rules = [Path(pattern).name for pattern in prometheus["rule_files"]]
    assert any(list((OPS / "prometheus").glob(pattern)) for pattern in rules)
    provisioning = OPS / "grafana" / "provisioning"
    source = yaml.safe_load((provisioning / "datasources" / "rmq.yaml").read_text())
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "rmq.yaml").read_text())[
        "providers"
    ]
    mounts = document["services"]["grafana"]["volumes"]
    assert any(mount.split(":")[1] == provider["options"]["path"] for mount in mounts)


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((OPS / "k8s" / "rmq.yaml").read_text()))


@pytest.mark.parametrize("document", documents(), ids=lambda each: each["kind"])
def test_a_manifest_is_one_by_its_schema(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    assert document["metadata"]["namespace"] == "rmq"


def test_probes_ports_and_the_hand_over_of_a_pod_are_those_of_a_broker() -> None:
    sets = {each["metadata"]["name"]: each for each in documents() if each["kind"] == "StatefulSet"}
    assert set(sets) == {"rmq-namesrv", "rmq-broker-a"}
    for name, metrics_port in (("rmq-namesrv", 5556), ("rmq-broker-a", 5557)):
        pod = sets[name]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["metrics"] == metrics_port
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
        assert pod["securityContext"]["runAsNonRoot"] is True
    pod = sets["rmq-broker-a"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    port = SCHEMA["listenPort"].default
    assert isinstance(port, int)
    assert {port["containerPort"] for port in container["ports"]} >= {port - 2, port, port + 1}
    program, command, *words = container["lifecycle"]["preStop"]["exec"]["command"]
    assert (program, command) == ("rmq", "ha")
    chosen = chosen_by("ha", *words)
    assert (chosen.path, chosen.args.broker) == ("rmq ha hand-over", f"127.0.0.1:{port}")
    assert chosen.args.yes
