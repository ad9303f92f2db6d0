"""Stands in for the one module of kafka-python's test support that its release leaves out."""


class ExternalService:
    """A broker that somebody else has started."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def open(self) -> None:
        """It runs already."""

    def close(self) -> None:
        """Whoever started it stops it."""


class SpawnedService:
    """Never made here: the broker under test is not theirs to start."""
