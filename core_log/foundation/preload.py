"""Sources and sinks that have to load much before their first answer."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Preloading(Protocol):
    """Asking the log what has to be known first leaves time for that."""

    def prepare(self) -> None:
        """Begins with it, in a thread, before anything is asked. What fails is told to whoever asks
        first; nothing outside is touched."""
        ...
