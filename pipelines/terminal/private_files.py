"""Files of a log that only its user may read."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.core_log.foundation.settings import BrokerSettings


def keep_private(settings: "BrokerSettings") -> None:
    """Files of a log that authenticates are for its user only: they hold what passwords are checked
    against."""
    if not (settings.security.authenticates or settings.cluster_secret):
        return
    os.umask(0o077)
    metadata = settings.data / "log" / "__cluster_metadata-0"
    if metadata.is_dir():  # it may have been made before there were users
        metadata.chmod(0o700)
