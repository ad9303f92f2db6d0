"""When to read at once, and when to let the server's messages gather first."""

PAUSE_SECONDS, LOCAL_PAUSE_SECONDS = 0.005, 0.0005
GATHER_SECONDS = 0.020
SHORT_READ_BYTES = 64 << 10
BUSY_BYTES_PER_SECOND = 4 << 20


class ReadBatching:
    """Reads a quiet stream at once, and a busy one in gulps.

    The server sends each message by itself. Whoever takes every one as it comes makes it wake
    up, send and sleep for each; whoever comes a little later finds many. That wants room on the
    server's side meanwhile, which TCP gives and a Unix socket hardly does.
    """

    def __init__(self, *, now: float, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._pause_seconds = pause_seconds
        self._since, self._received, self._is_busy = now, 0, False
        self._gathering_since: float | None = None

    def note_bytes(self, count: int, *, now: float) -> None:
        self._received += count
        elapsed = now - self._since
        if elapsed >= PAUSE_SECONDS:
            self._is_busy = self._received > BUSY_BYTES_PER_SECOND * elapsed
            self._since, self._received = now, 0
        if self._gathering_since is None:
            self._gathering_since = now

    def pause(self, *, now: float) -> float:
        """How long to wait before looking for more; 0 when what there is should go on."""
        since = now if self._gathering_since is None else self._gathering_since
        return self._pause_seconds if self._is_busy and now - since < GATHER_SECONDS else 0.0

    def handed_on(self) -> None:
        self._gathering_since = None
