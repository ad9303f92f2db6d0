"""Credentials of clients and of other brokers: users' passwords, and secrets."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.replication.access_changes import credential_in
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.security.login import BETWEEN_NODES, Exchange, ListenerSecurity
from headwater.core_log.security.principal import CLUSTER, LOCAL
from headwater.core_log.security.sasl_mechanisms import (
    HASHES,
    ROUNDS_MIN,
    PlainServer,
    ScramCredential,
    ScramServer,
    credential_of,
    decoy,
    derive,
    read_secret_file,
    salt_password,
)
from headwater.core_log.storage.files import Files
from headwater.core_log.storage.store import SECRET_MODE

logger = logging.getLogger(__name__)
LOCAL_SECRET = "local.secret"  # the file of a broker without a cluster secret
NONCE_BITS, SECRET_BITS = 192, 256


def cluster_secret_of(settings: BrokerSettings, files: Files) -> Callable[[], Sequence[str]]:
    """Returns a function for the cluster secret: one, or the new and the old one, or none. It reads
    the file again and again, so that a secret changes without a restart. Raises `ConfigError` if
    the file cannot be used now."""
    path = settings.cluster_secret
    if path is None:
        return tuple
    last = read_secret_file(path, read=files.read)

    def find() -> Sequence[str]:
        nonlocal last
        try:
            last = read_secret_file(path, read=files.read)
        except ConfigError as error:
            logger.error("the secret that was read last is kept: %s", error)
        return last

    return find


class Credentials:
    """Finds what a proof is checked against. For a user that does not exist it is a decoy, so that
    nobody learns which names there are."""

    def __init__(
        self,
        settings: BrokerSettings,
        security: ListenerSecurity,
        files: Files,
        *,
        cluster_secrets: Callable[[], Sequence[str]],
        image: Callable[[], MetadataImage],
        random: Random,
    ) -> None:
        self._files, self._random, self._image = files, random, image
        self._cluster_secrets = cluster_secrets
        self._sasl = frozenset(settings.security.sasl)
        self._local = ""
        if security.authenticates and settings.cluster_secret is None:
            self._local = self._local_secret(settings.data / LOCAL_SECRET)

    def _local_secret(self, path: Path) -> str:
        """Returns the secret of this directory. It stays, so that clients outlive a restart."""
        if not self._files.exists(path):
            made = f"{self._random.getrandbits(SECRET_BITS):064x}\n"
            self._files.replace(path, made.encode(), mode=SECRET_MODE)
        return self._files.read(path).decode().strip()

    @property
    def _local_passwords(self) -> Sequence[str]:
        if self._local:
            return (self._local,)
        return [derive(each, "local") for each in self._cluster_secrets()]

    @property
    def local_password(self) -> str:
        """The password of our own commands on this machine; empty without any secret."""
        return next(iter(self._local_passwords), "")

    def exchange(self, mechanism: str) -> Exchange:
        if mechanism == "PLAIN":
            return PlainServer(find=self._find_for_plain)
        nonce = f"{self._random.getrandbits(NONCE_BITS):048x}"
        return ScramServer(mechanism, find=lambda user: self._find(mechanism, user), nonce=nonce)

    def _find(self, mechanism: str, user: str) -> Sequence[ScramCredential]:
        passwords: Sequence[str] = ()
        if mechanism == BETWEEN_NODES and user == CLUSTER.name:
            passwords = self._cluster_secrets()
        elif mechanism == BETWEEN_NODES and user == LOCAL.name:
            passwords = self._local_passwords
        elif mechanism in self._sasl:
            known = credential_in(self._image(), user, mechanism)
            return (known or self._decoy(mechanism, user),)
        if not passwords:
            return (self._decoy(mechanism, user),)
        salt = derive(passwords[0], f"salt of {user}")[:26].encode()
        return [
            credential_of(
                mechanism,
                salt_password(mechanism, each, salt, ROUNDS_MIN),
                salt=salt,
                rounds=ROUNDS_MIN,
            )
            for each in passwords
        ]

    def _find_for_plain(self, user: str) -> tuple[str, ScramCredential]:
        for mechanism in reversed(HASHES):
            if (known := credential_in(self._image(), user, mechanism)) is not None:
                return mechanism, known
        return BETWEEN_NODES, self._decoy(BETWEEN_NODES, user)

    def _decoy(self, mechanism: str, user: str) -> ScramCredential:
        secret = self._local or self._cluster_secrets()[0]
        return decoy(mechanism, user, derive(secret, "decoy").encode())
