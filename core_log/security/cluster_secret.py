"""The secret with which the nodes of a cluster know each other, and what is derived from it."""

import hmac
from collections.abc import Callable
from pathlib import Path

from headwater.core_log.foundation.errors import ConfigError

LENGTH_MIN = 32
LINES_MAX = 2


def read_secret_file(
    path: Path, *, read: Callable[[Path], bytes] = Path.read_bytes
) -> tuple[str, ...]:
    """Raises `ConfigError` if the file cannot be used."""
    try:
        content = read(path)
    except OSError as error:
        raise ConfigError(
            "the cluster secret cannot be read",
            hint="`headwater cluster secret > cluster.secret` makes one",
            file=str(path),
            reason=error.strerror,
        ) from None
    return read_cluster_secret(content, str(path))


def read_cluster_secret(content: bytes, path: str) -> tuple[str, ...]:
    """Returns the secret; two, the new one first, while it is being changed."""
    try:
        lines = tuple(line.strip() for line in content.decode().splitlines() if line.strip())
    except UnicodeDecodeError:
        lines = ()
    if not 1 <= len(lines) <= LINES_MAX or min(map(len, lines)) < LENGTH_MIN:
        raise ConfigError(
            "the file does not hold a cluster secret",
            hint="`headwater cluster secret > cluster.secret` makes one; the file has one line, "
            "or two while the secret is changed",
            file=path,
        )
    return lines


def derive(secret: str, purpose: str) -> str:
    """Returns another secret, from which nobody learns this one."""
    return hmac.digest(secret.encode(), purpose.encode(), "sha256").hex()
