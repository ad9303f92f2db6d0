"""A Prometheus with the configuration and the alert rules of the repository, made quicker."""

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from scripts.free_port import free_port
from scripts.owned_process import start_owned

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy/prometheus/alerts.yaml"
PATIENCE_S = 120

Processes = Sequence["subprocess.Popen[str]"]


def programs() -> Path:
    """The directory of `prometheus` and `promtool`."""
    found = subprocess.run(
        [ROOT / "scripts/fetch_prometheus.sh"], check=True, capture_output=True, text=True
    )
    return Path(found.stdout.strip())


def alerts() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def start_prometheus(
    programs: Path, directory: Path, target: str, token: Path, *, rules: Path = ALERTS
) -> "tuple[str, subprocess.Popen[str]]":
    """Its address, and the process."""
    config = yaml.safe_load((ALERTS.parent / "prometheus.yaml").read_text())
    config["global"] = {
        "scrape_interval": "200ms",
        "scrape_timeout": "200ms",
        "evaluation_interval": "200ms",
    }
    config["rule_files"] = [str(rules)]
    [job] = config["scrape_configs"]
    job["authorization"]["credentials_file"] = str(token)
    job["static_configs"] = [{"targets": [target]}]
    file, address = directory / "prometheus.yaml", f"127.0.0.1:{free_port()}"
    file.write_text(yaml.safe_dump(config))
    server = start_owned(
        [
            programs / "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={directory / 'tsdb'}",
            f"--web.listen-address={address}",
            "--log.level=error",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return address, server


def ask(prometheus: str, query: str) -> list[Any]:
    """The result; a query that Prometheus refuses fails. Empty until it listens."""
    url = f"http://{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
            return found
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it is starting
            return []
        raise AssertionError(f"{query}: {error.read().decode()}") from None
    except ConnectionError:
        return []
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionError):
            return []
        raise


def until(is_so: Callable[[], bool], processes: Processes) -> None:
    """Waits for it, as long as all the processes run."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        for process in processes:
            assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it comes to be so"
        time.sleep(0.1)
