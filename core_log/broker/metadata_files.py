"""Opens the metadata log of a broker, or begins it anew where others have it."""

import logging

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.replication.metadata import METADATA_ID, METADATA_TOPIC
from headwater.core_log.replication.metadata_log import METADATA_LOG_CONFIG
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.store import Store

logger = logging.getLogger(__name__)
METADATA_AT = TopicPartition(METADATA_TOPIC, 0)


def open_metadata_log(store: Store, settings: BrokerSettings) -> PartitionLog:
    """A voter whose log is damaged or missing has lost votes and decisions that it promised to
    keep. It goes on as a new voter, which copies the log of the others: under its former id it
    might elect a leader that lacks them."""
    try:
        return _open(store)
    except CorruptLog as error:
        if not store.has_joined:
            raise
        if not settings.join:
            raise CorruptLog(
                f"the cluster's metadata: {error.problem}",
                **error.facts,
                hint="start the broker with --join and the address of another one, which has it",
            ) from error
        logger.warning("the cluster's metadata is copied anew from other brokers: %s", error)
        store.renew_directory_id()
        store.set_damaged_aside(METADATA_AT)
        return _open(store)


def _open(store: Store) -> PartitionLog:
    return store.open_partition(METADATA_TOPIC, 0, topic_id=METADATA_ID, config=METADATA_LOG_CONFIG)
