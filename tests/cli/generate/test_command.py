"""`rmq generate`: what is printed and written, what is in `ops`, and what is never in any file."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest

from rmq.broker.config import load_broker_config
from rmq.cli import main
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.generate.command import KINDS, load_kinds
from tests.cli.generate.generate_kit import generate, texts
from tests.paths import DOCS, ROOT

if TYPE_CHECKING:
    from pathlib import Path

RUNNING = """\
brokerClusterName=Main
brokerName=orders
brokerId=1
brokerRole=SLAVE
listenPort=10921
namesrvAddr=10.0.0.5:9876;10.0.0.6:9876
storePathRootDir=/data/orders
brokerIP1=10.0.0.7
metricsPort=6557
haSecret=correct horse battery staple
tls.server.keyPassword=hunter2hunter2
fileReservedTime=24
messageDelayLevel=1s 5s
logFile=/var/log/orders.log
"""
SECRETS = ("correct horse", "hunter2")
FILLED_IN = [kind.name for kind in load_kinds() if kind.is_filled_in]


@pytest.fixture
def running(tmp_path: Path) -> Path:
    """The settings of a running broker."""
    path = tmp_path / "broker.conf"
    path.write_text(RUNNING)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_ops_is_what_is_generated(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.9.9.9:9876")
    folder = ROOT / "ops" / kind
    assert generate(tmp_path, kind) == texts(folder, folder.rglob("*")), (
        f"rmq generate {kind} --out ops/{kind} --force"
    )


@pytest.mark.parametrize("kind", FILLED_IN)
def test_files_are_filled_in_from_the_settings_of_a_broker(
    kind: str, running: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = generate(tmp_path / "out", kind, "-c", str(running))
    err = capsys.readouterr().err
    assert "note: haSecret is secret and was left out" in err
    whole = "\n".join(files.values())
    assert not [secret for secret in SECRETS if secret in whole + err]
    # A blank follows the braces of what Prometheus fills in.
    assert not re.search(r"\{\{\w", whole)
    if kind == "systemd":
        assert "ReadWritePaths=/etc/rmq /data/orders\n" in files["rmq-broker@.service"]
        return
    if kind == "prometheus":
        for target in ("orders-0:6557", "orders-1:6557", "10.0.0.5:5556", "10.0.0.6:5556"):
            assert f'- "{target}"\n' in files["prometheus.yml"]
        assert "cluster: Main\n" in files["prometheus.yml"]
    else:
        for text in ("Main", "orders", "6557", "fileReservedTime=24", "messageDelayLevel=1s 5s"):
            assert text in whole
        assert "10.0.0.7" not in whole
        # A container has no such file.
        assert ("logFile=" in whole) == (kind == "broker-conf")


def test_generated_settings_say_what_those_they_were_made_of_say(
    running: Path, tmp_path: Path
) -> None:
    generate(tmp_path / "out", "broker-conf", "--topology", "sync-pair", "-c", str(running))
    made = tmp_path / "out" / "sync-pair" / "orders-slave.conf"
    before = load_broker_config(running, {}, {}).values
    after = load_broker_config(made, {}, {}).values
    changed = {key for key in before if before[key] != after[key]}
    assert changed <= {
        "brokerIP1",
        "haSecret",
        "tls.server.keyPassword",
        "expectedSlaves",
        "autoCreateTopicEnable",
        "metricsAddress",
    }


def test_targets_and_links_of_alerts_can_be_chosen(tmp_path: Path) -> None:
    files = generate(
        tmp_path,
        *("prometheus", "--brokers", "10.0.0.1; 10.0.0.2:6557;[fd00::1]:5557;fd00::2"),
        *("--runbooks", "https://wiki.example/alerts"),
    )
    found = re.findall(r'- "(.*:\d+)"', files["prometheus.yml"])
    wanted = ["10.0.0.1:5557", "10.0.0.2:6557", "[fd00::1]:5557", "[fd00::2]:5557"]
    assert found[: len(wanted)] == wanted
    assert "https://wiki.example/alerts#rocketmqbrokerdown" in files["broker-alerts.yml"]


def test_one_file_is_printed_as_it_is_and_several_with_their_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["generate", "k8s"]) == ExitCode.OK
    assert capsys.readouterr().out == (ROOT / "ops" / "k8s" / "rmq.yaml").read_text()
    assert main(["generate", "systemd"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("# --- ")] == [
        "# --- rmq-namesrv.service",
        "# --- rmq-broker@.service",
    ]


def test_dashboards_are_the_same_for_every_deployment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = generate(
        tmp_path, "grafana", "--prometheus", "https://prometheus.example:443/x", "--folder", "/d"
    )
    folder = ROOT / "ops" / "grafana"
    others = {path: text for path, text in files.items() if path.endswith(".yaml")}
    assert "url: https://prometheus.example:443/x\n" in others["provisioning/datasources/rmq.yaml"]
    assert "path: /d\n" in others["provisioning/dashboards/rmq.yaml"]
    assert {path: text for path, text in files.items() if path not in others} == texts(
        folder, folder.glob("*.json")
    )
    capsys.readouterr()
    assert main(["generate", "grafana", "--dashboard", "store"]) == ExitCode.OK
    assert capsys.readouterr().out == (folder / "store.json").read_text()
    assert main(["generate", "grafana", "-c", "broker.conf"]) == ExitCode.USAGE
    page = "https://wiki.example/alerts"
    capsys.readouterr()
    assert main(["generate", "grafana", "--runbooks", page]) == ExitCode.OK
    assert f'"url": "{page}#rocketmqnomaster"' in capsys.readouterr().out


def test_a_file_that_was_changed_is_not_written_over_without_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generate(tmp_path, "systemd")
    unit = tmp_path / "rmq-namesrv.service"
    unit.write_text("mine")
    (tmp_path / "rmq-broker@.service").unlink()
    assert main(["generate", "systemd", "--out", str(tmp_path)]) == ExitCode.FAILURE
    assert f"there already, and different: {unit}" in capsys.readouterr().err
    assert unit.read_text() == "mine"
    assert not (tmp_path / "rmq-broker@.service").exists()
    generate(tmp_path, "systemd", "--force")
    assert unit.read_text() != "mine"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("k8s", "--name", "broker a"), "--name 'broker a': letters, digits"),
        (("k8s", "--name", "Broker_A"), "containers need a name of lower-case letters"),
        (("broker-conf", "--name", "../etc"), "--name '../etc'"),
        (("broker-conf", "--cluster", "a\nb"), "--cluster 'a\\nb'"),
        (("broker-conf", "--port", "80"), "--port 80 is not between 1024 and 65000"),
        (("broker-conf", "-n", "nowhere"), "-n nowhere: "),
        (("broker-conf", "-n", ";"), "-n names no nameserver"),
        (("broker-conf", "--store", "relative"), "--store 'relative' is not an absolute path"),
        (("systemd", "--store", "/a b"), "--store '/a b'"),
        (("systemd", "--user", "root;rm"), "--user 'root;rm' is no name of an account"),
        (("systemd", "--rmq", "rmq"), "--rmq 'rmq' is not an absolute path"),
        (("k8s", "--image", "a b"), "--image 'a b' is no name of an image"),
        (("k8s", "--namespace", "A"), "--namespace 'A' is no name of Kubernetes"),
        (("k8s", "--storage-class", "x\ny"), "--storage-class"),
        (("k8s", "--storage", "much"), "--storage 'much' is no size"),
        (("k8s", "--slaves", "9"), "--slaves 9 is not between 0 and 8"),
        (("grafana", "--prometheus", "a b"), "--prometheus 'a b' is not http(s)://HOST:PORT"),
        (("grafana", "--runbooks", "here"), "--runbooks 'here' is not http(s)://HOST/PAGE"),
        (("grafana", "--folder", "here"), "--folder 'here' is not an absolute path"),
        (("prometheus", "--brokers", "a;b:0"), "--brokers a;b:0: 'b:0' is not host:port"),
        (("prometheus", "--brokers", 'a"b'), "is no name or address of a host"),
        (("prometheus", "-n", 'a"b:9876'), "-n: 'a\"b' is no name or address of a host"),
        (("prometheus", "--brokers", ";"), "--brokers names no broker"),
        (("prometheus", "--runbooks", "a b"), "--runbooks 'a b' is no address of a page"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(
    arguments: tuple[str, ...], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", *arguments]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert f"rmq generate {arguments[0]}: error: " in err
    assert what in err


def test_settings_that_are_wrong_are_named_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerNam=a\n")
    assert main(["generate", "systemd", "-c", str(path)]) == ExitCode.CONFIG
    assert f"{path}:1: brokerNam: is not a known setting" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "below"
    assert main(["generate", "k8s", "--out", str(folder)]) == ExitCode.FAILURE
    assert str(folder) in capsys.readouterr().err


def test_every_command_line_in_the_guide_is_understood(
    capsys: pytest.CaptureFixture[str],
) -> None:
    guide = "".join((DOCS / f"{page}.md").read_text() for page in ("deployment", "dashboards"))
    lines = re.findall(r"(?:`|^    )rmq (generate [^`|#\n]*)", guide, re.MULTILINE)
    assert {line.split()[1] for line in lines} == set(KINDS)
    for line in lines:
        words = shlex.split(re.sub(r"--out \S+", "", line))
        assert main(words) == ExitCode.OK, line
    assert capsys.readouterr().err == ""
