"""How clients on the machine of a broker prove that they may read its data directory."""

from pathlib import Path

from headwater.core_log.foundation.endpoint import Endpoint
from headwater.core_log.foundation.settings import SecuritySettings, TlsSettings
from headwater.core_log.security.cluster_secret import derive, read_secret_file
from headwater.core_log.security.principal import LOCAL


def security_at(endpoint: Endpoint) -> SecuritySettings:
    """Returns the security of a connection to the owner of a data directory."""
    return _security(endpoint.secret, endpoint.ca_file)


def security_by_secret(secret_file: Path, tls: TlsSettings | None) -> SecuritySettings:
    """The same from a broker's own settings, so that other brokers of its cluster are reached while
    it does not run."""
    newest = read_secret_file(secret_file)[0]
    return _security(derive(newest, "local"), None if tls is None else str(tls.trusted_file))


def _security(password: str | None, ca_file: str | None) -> SecuritySettings:
    encryption = "PLAINTEXT" if ca_file is None else "SSL"
    known = {"protocol": encryption, "ca_file": ca_file}
    if password is not None:
        known |= {"protocol": f"SASL_{encryption}", "user": LOCAL.name, "password": password}
    return SecuritySettings.model_validate(known)
