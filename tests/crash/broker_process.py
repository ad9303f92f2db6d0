"""A broker in a process of its own, to be killed as hard as the operating system can."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from headwater.core_log.foundation.endpoint import FILE_NAME, decode_endpoint
from headwater.core_log.foundation.errors import DecodeError
from headwater.pipelines.terminal.exit_codes import TERMINATED
from scripts.free_port import free_port
from scripts.owned_process import start_owned

PROJECT = Path(__file__).resolve().parents[2]
START_S_MAX = 240
STOP_S_MAX = 120


class BrokerProcess:
    """Comes back under the same address, on the same files; what it says is kept in one file."""

    def __init__(self, data: Path, output: Path, settings: dict[str, str]) -> None:
        self.data, self.output = data, output
        self.address = f"127.0.0.1:{free_port()}"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: list[int] = []

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def launch(self) -> None:
        """Returns at once, while the broker may still be recovering."""
        assert self._process is None, "one broker at a time"
        command = [sys.executable, "-m", "headwater.pipelines.cli", "broker"]
        command += ["--data", str(self.data), "--listen", self.address]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with self.output.open("ab") as output:
            output.write(b"--- started\n")
            self._process = start_owned(command, cwd=PROJECT, stdout=output, stderr=output)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        while not self._listens():
            assert self.is_running, f"the broker ended while starting: {self.last_words()}"
            assert time.monotonic() < deadline, f"the broker does not start: {self.last_words()}"
            time.sleep(0.01)

    def start(self) -> None:
        self.launch()
        self.wait_until_ready()

    def _listens(self) -> bool:
        assert self._process is not None, "who waits for a broker has launched it"
        with suppress(FileNotFoundError, DecodeError):
            content = (self.data / FILE_NAME).read_bytes()
            return decode_endpoint(content).pid == self._process.pid
        return False

    @property
    def pid(self) -> int:
        assert self._process is not None, "only a running broker has a number"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """No handler runs, nothing is flushed; a process of its own beside it may live on."""
        assert self._process is not None, "what is killed has been started"
        assert self.is_running, f"the broker ended by itself: {self.last_words()}"
        self._process.kill()
        self._process.wait()

    def kill_and_restart(self) -> None:
        self.kill()
        self.forget()
        self.start()

    def freeze(self) -> None:
        """Returns once no thread of it runs any more; a sync under way comes to its end first."""
        assert self._process is not None, "what is frozen has been started"
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill_if_running(self) -> None:
        """Where the broker may rightly have ended by itself, as when its disk is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """After its end: makes room for the next, though a compaction may not have noticed yet."""
        if self._process is not None:
            self._process.wait()
            self._groups.append(self._process.pid)
            self._process = None

    def end_children(self) -> None:
        """Whatever any of the brokers so far had started."""
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self._groups.clear()

    def stop(self) -> None:
        """Asks it to end, and holds it to its manners."""
        assert self._process is not None, "what is stopped has been started"
        self._process.terminate()
        code = self._process.wait(STOP_S_MAX)
        self.forget()
        assert code == TERMINATED, f"a clean stop ends with {code}: {self.last_words()}"

    def last_words(self) -> str:
        return self.output.read_text(errors="replace")[-3000:]
