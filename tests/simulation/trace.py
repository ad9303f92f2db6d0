"""Everything that happens in a simulated history, in its order: a seed has one trace."""

import hashlib

from headwater.core_log.storage.files import Bytes


class Trace:
    """A digest of all events: steps of processes, and frames that they send each other."""

    def __init__(self, *, keeps_text: bool = False) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._keeps_text, self._is_over = keeps_text, False
        self.text = list[str]()

    def note(self, now_s: float, what: str, data: Bytes = b"") -> None:
        if self._is_over:
            return
        event = f"{now_s:.9f} {what}"
        self._digest.update(event.encode())
        self._digest.update(data)
        if self._keeps_text:
            self.text.append(f"{event} {bytes(data).hex()}")

    def end(self) -> None:
        """Nobody sees the rest: processes that are killed come to their ends somehow."""
        self._is_over = True

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()
