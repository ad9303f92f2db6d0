"""One Apicurio Registry in memory, which answers as Confluent's registry does."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from scripts.free_port import free_port
from scripts.owned_process import start_owned
from tests.compat.java_programs import JAVA, directory_from

START_S_MAX = 240


@contextmanager
def running_apicurio(directory: Path) -> Iterator[str]:
    """Yields the address to write into `log.registry`."""
    application = directory_from("fetch_registry.sh", "HEADWATER_REGISTRY")
    [jar] = application.glob("*-runner.jar")
    port = free_port()
    options = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    command = [*JAVA, *options, "-jar", str(jar)]
    said = directory / "registry.log"
    with said.open("wb") as output:
        process = start_owned(command, stdout=output, stderr=output, cwd=directory)
        address = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        try:
            wait_until_it_answers(process, address, said)
            yield address
        finally:
            process.terminate()
            process.wait()


def wait_until_it_answers(process: subprocess.Popen[bytes], address: str, said: Path) -> None:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        assert process.poll() is None, said.read_text()[-3000:]
        try:
            with urlopen(f"{address}/subjects") as answer:
                answer.read()
        except (URLError, ConnectionError):
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"the registry does not answer: {said.read_text()[-3000:]}")


def demand_compatibility(address: str, subject: str, level: str) -> None:
    body = f'{{"compatibility": "{level}"}}'.encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urlopen(Request(f"{address}/config/{subject}", body, headers, method="PUT")) as answer:
        answer.read()
