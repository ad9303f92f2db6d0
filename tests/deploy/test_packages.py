"""What is deployed runs without rights, on a read-only root with one volume, and drains."""

import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from scripts.free_port import free_port
from scripts.owned_process import start_owned
from tests.budget import PATIENCE_S
from tests.certificates import Authority

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PIPELINE = """
pipeline: shop
source: {type: generator, size: 1000, rate: 100}
sink: {type: sql, url: "sqlite:////mnt/target.db", commit_every: 100ms}
workers: 1
"""
USER = 10_001
LOCKED = """
mount --bind "$VOLUME" /mnt && mount --bind "$CONFIG" /srv && mount -o remount,bind,ro /srv &&
mount -t tmpfs tmpfs $TMPDIR && mount -o remount,bind,ro / && cd /mnt &&
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs $WHO "$@"
"""
"""One volume, one configuration, room for temporary files, and everything else read-only."""


def container_command() -> list[str]:
    """What the container runs, with its directories where the test mounts them."""
    text = (DEPLOY / "container/Containerfile").read_text().replace("\\\n", " ")
    entry, command = (
        json.loads(re.findall(rf"^{word} (\[.*\])$", text, re.MULTILINE)[-1])
        for word in ("ENTRYPOINT", "CMD")
    )
    return in_test_directories([*entry, *command])


def unit_command() -> list[str]:
    unit = (DEPLOY / "systemd/headwater.service").read_text()
    [line] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    return in_test_directories(shlex.split(line))


def chart_command() -> list[str]:
    """With the secrets that the chart mounts beside the configuration."""
    manifests = yaml.safe_load_all((Path(__file__).parent / "chart_defaults.yaml").read_text())
    [found] = [each for each in manifests if each and each["kind"] == "StatefulSet"]
    [container] = found["spec"]["template"]["spec"]["containers"]
    words = [re.sub(r"/etc/headwater-(tls|token)/", "/srv/", each) for each in container["args"]]
    return in_test_directories(["headwater", *words])


def in_test_directories(command: list[str]) -> list[str]:
    program = [sys.executable, "-B", "-m", "headwater.pipelines.cli"]
    places = [("/var/lib/headwater", "/mnt"), ("/etc/headwater", "/srv")]
    words = [*program, *command[1:]]
    for place, test_place in places:
        words = [word.replace(place, test_place) for word in words]
    return words


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="only root mounts a read-only root"
)
@pytest.mark.parametrize("command_of", [container_command, unit_command, chart_command])
def test_the_command_runs_without_rights_on_a_read_only_root_and_drains(
    tmp_path: Path, command_of: Any
) -> None:
    volume, config = tmp_path / "volume", tmp_path / "config"
    volume.mkdir()
    config.mkdir()
    (config / "pipeline.yaml").write_text(PIPELINE)
    certificate = Authority(config).issue("tls").read_bytes()
    for name in ("tls.crt", "tls.key"):
        (config / name).write_bytes(certificate)
        (config / name).chmod(0o644)
    (config / "token").write_text("a-token-of-the-test")
    port = free_port()
    command = [word.replace(":8471", f":{port}") for word in command_of()]
    who = f"--reuid={USER} --regid={USER} --clear-groups" if may_be_read() else ""
    if who:
        os.chown(volume, USER, USER)
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
        "PYTHONPATH": str(ROOT),
        "HOME": "/mnt",
        "TMPDIR": next(each for each in ("/tmp", "/var/tmp") if not ROOT.is_relative_to(each)),
        "VOLUME": str(volume),
        "CONFIG": str(config),
        "WHO": who,
    }
    process = start_owned(
        ["unshare", "--mount", "sh", "-c", LOCKED, "sh", *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        while not (
            is_ready(port, is_encrypted="--key-file=/srv/tls.key" in command)
            and (volume / "target.db").exists()
        ):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()

    assert process.returncode == 143, said
    assert "stopping" in said and "Traceback" not in said
    assert (volume / "log/log/.kafka_cleanshutdown").exists()


def may_be_read() -> bool:
    """Whether another user may run this checkout with this interpreter."""
    python = Path(sys.executable).resolve()
    needed = [ROOT, *ROOT.parents, *python.parents]
    return all(path.stat().st_mode & 0o005 == 0o005 for path in needed)


def is_ready(port: int, *, is_encrypted: bool) -> bool:
    """As a probe asks, which trusts every certificate."""
    address = f"{'https' if is_encrypted else 'http'}://127.0.0.1:{port}/readyz"
    trusting = ssl._create_unverified_context() if is_encrypted else None
    try:
        with urllib.request.urlopen(address, timeout=60, context=trusting) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    unit = (DEPLOY / "systemd/headwater.service").read_text()

    assert "DynamicUser=yes" in unit and "ProtectSystem=strict" in unit
    assert "SuccessExitStatus=143" in unit and "KillMode=mixed" in unit
    if shutil.which("systemd-analyze") is None:
        return  # the lines above hold everywhere
    copy = tmp_path / "headwater.service"
    copy.write_text(unit.replace("/opt/headwater/bin/headwater", sys.executable))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True
    )
    ours = [line for line in ran.stderr.splitlines() if "headwater.service" in line]
    assert ours == [], ran.stderr


def test_the_container_has_a_user_without_rights_one_volume_and_a_probe() -> None:
    text = (DEPLOY / "container/Containerfile").read_text()
    instructions = [line.split()[0] for line in text.splitlines() if re.match(r"^[A-Z]+ ", line)]

    assert f"USER {USER}:{USER}" in text
    assert instructions.count("VOLUME") == 1 and 'VOLUME ["/var/lib/headwater"]' in text
    assert "HEALTHCHECK" in instructions and "STOPSIGNAL SIGTERM" in text
    assert instructions.index("USER") < instructions.index("ENTRYPOINT")
    assert ":latest" not in text


def test_compose_runs_the_same_container_read_only_with_one_volume() -> None:
    services = yaml.safe_load((DEPLOY / "container/compose.yaml").read_text())["services"]
    ours = services["headwater"]

    assert ours["read_only"] is True and ours["user"] == f"{USER}:{USER}"
    assert ours["cap_drop"] == ["ALL"] and ours["stop_grace_period"] == "60s"
    assert [each for each in ours["volumes"] if not each.endswith(":ro")] == [
        "headwater:/var/lib/headwater"
    ]
    assert services["prometheus"]["network_mode"] == "service:headwater"
    assert "ports" not in ours, "nothing listens beyond loopback"
    options = {
        option.partition("=")[0]
        for service in services.values()
        for mount in service["tmpfs"]
        for option in mount.partition(":")[2].split(",")
    }
    assert options <= {"", "mode", "size"}, "Podman refuses to start with some of Docker's"


def test_the_compose_file_is_one_by_the_specification() -> None:
    text = (DEPLOY / "container/compose.yaml").read_text()

    assert PyCompose.from_yaml(text).service_names() == ["headwater", "prometheus"]
    with pytest.raises(ValueError, match="read_only"):
        PyCompose.from_yaml(text.replace("read_only: true", "read_only: perhaps"))
