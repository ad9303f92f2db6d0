"""How clients on the machine of a broker prove that they may read its data directory."""

from headwater.core_log.foundation.endpoint import Endpoint
from headwater.core_log.foundation.settings import SecuritySettings
from headwater.core_log.security.principal import LOCAL


def security_at(endpoint: Endpoint) -> SecuritySettings:
    """Returns the security of a connection to the owner of a data directory."""
    encryption = "PLAINTEXT" if endpoint.ca_file is None else "SSL"
    known = {"protocol": encryption, "ca_file": endpoint.ca_file}
    if endpoint.secret is not None:
        known |= {"protocol": f"SASL_{encryption}", "user": LOCAL.name, "password": endpoint.secret}
    return SecuritySettings.model_validate(known)
