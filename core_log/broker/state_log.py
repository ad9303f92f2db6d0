"""An internal partition for the coordinators: a StateLog over a partition that this broker
leads."""

from collections.abc import Iterator, Sequence

from headwater.core_log.broker.partition import Partition
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.state_log import ProducerStamp, StoredBatch, StoredRecord
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, decode_batch, encode_batch
from headwater.core_log.records.unreadable_batch import UNREADABLE, unreadable


class PartitionStateLog:
    """Appends the broker's own records, uncompressed and without sequences, and reads them back."""

    def __init__(self, partition: Partition, clock: Clock) -> None:
        self.partition, self._clock = partition, clock

    @property
    def end_offset(self) -> int:
        return self.partition.log.end_offset

    @property
    def leader_epoch(self) -> int:
        return self.partition.leader_epoch

    def forget_before(self, offset: int) -> None:
        """Allows the deletion of older segments, because their state is stored elsewhere."""
        self.partition.log.delete_records_before(offset)

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer: ProducerStamp | None = None,
    ) -> int:
        assert records, "a batch without records would end the log for whoever reads it"
        now_ms = self._clock.now_ms()
        plain = [PlainRecord(key, value, timestamp_ms=now_ms) for key, value in records]
        if producer is None:
            batch = encode_batch(plain)
        else:
            batch = encode_batch(
                plain,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                is_transactional=True,
            )
        self.partition.log.append(
            memoryview(batch),
            BatchHeader.read(batch),
            leader_epoch=self.partition.leader_epoch,
            now_ms=now_ms,
        )
        self.partition.on_written(is_urgent=False)
        return self.partition.log.end_offset

    async def durable(self, end_offset: int) -> None:
        await self.partition.wait_committed(end_offset)

    def read(self) -> Iterator[StoredBatch]:
        """Returns batches as stored; the caller handles markers and aborted batches."""
        log = self.partition.log
        for batch in log.batches(log.start_offset):
            try:
                header, records = decode_batch(batch)
            except UNREADABLE as error:
                at = TopicPartition(log.topic, log.partition)
                raise unreadable(error, batch, at) from error
            yield StoredBatch(
                header, [StoredRecord(each.offset, each.key, each.value) for each in records]
            )
