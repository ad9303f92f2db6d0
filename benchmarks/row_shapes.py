"""Why each shape that a row has on its way is needed."""

REASONS = {
    # PostgreSQL's stream
    "np.ndarray of uint8": "the buffer that the socket is read into, and the memory for"
    " decompressed records: both are used again and again",
    "MessageColumns": "whole frames in that buffer, which both decoders read",
    "bytes": "the frames of a few small transactions; values and records as they are written",
    "_Rows": "the rows of one relation, until all of a WAL batch are there: a column is made once",
    "pa.StringArray": "a column of the server's text; no text is checked or converted twice",
    "RowChanges": "changes of one relation in columns of text: missing values are filled in here,"
    " before text gets a type",
    "WalBatch": "changes of several tables, with their transactions and the position behind them",
    "Task": "the follower waits for the stream, for rows read beside it and for the heartbeat",
    # Changes
    "pa.RecordBatch": "typed rows; the contract of sources and sinks",
    "TableChanges": "rows with operations and places; the contract of sources and sinks",
    "PlacedChanges": "which transaction a change is of: an incremental snapshot drops its own rows"
    " by that",
    "MappedBatch": "a part of a WAL batch; only the last one has the position (exactly once)",
    "ChangeBatch": "what becomes readable as a whole; the contract of sources",
    # Into the log
    "RowColumn": "a column with the encoding of its values, which compiled code reads too",
    "list of RowColumn, bytes": "an event or a header as parts; what rows share is written once",
    "pa.BinaryArray": "keys and values of records",
    "Encoded": "keys and values; a delete has two records",
    "tuple of Encoded, TableChanges, list": "changes without the rows that were rejected",
    "memoryview": "parts of buffers without a copy",
    "bytearray": "a record batch, whose header is completed in place",
    "Batch": "a record batch with the figures of its header",
    "PartitionBatch": "a record batch and its partition: a table's go to several",
    "_EncodedPart": "the result of a thread, with rows that it rejected",
    "Future": "a part that another thread still encodes; an answer that is awaited",
    "_LogTransaction": "a transaction as it fills; an abort discards everything",
    # Through the wire and the broker
    "PartitionProduceData": "Kafka's message",
    "TopicProduceData": "Kafka's message",
    "ProduceRequest": "Kafka's message",
    "WireReader": "a frame and how far it is read",
    "ProducePart": "one partition of a request that is read in place",
    "ProduceFrame": "a request that is read in place",
    "ProduceAttempt": "a request may wait for a check of its transaction",
    "PartitionData": "Kafka's message",
    "FetchableTopicResponse": "Kafka's message",
    "FetchResponse": "Kafka's message",
    "Fetched": "record batches as stored; the contract of the log",
    # Out of the log
    "_Packed": "a batch whose size is known before it is decompressed: memory is bounded",
    "RecordSections": "records of several batches in one buffer: they are read at once",
    "RecordField": "one field of many records as views: a copy costs more than reading",
    "RecordViews": "records as views into that buffer",
    "dict of values": "an event that is read strictly, one at a time",
    "DecodedChanges": "changes with the size of their records, which is reported and bounds parts",
    # Into the lake
    "_Gathered": "changes of a table, until there are too many to hold",
    "InProcessWork": "changes that this process applies; Spark's are another class",
    "TableWork": "the work of a slice for one table, in this process or in Spark, or a failure",
    "pa.Table": "rows under the table's columns, beside those of the file",
    "tuple of KeyRange, list": "the task of a thread, or of an executor",
    "pa.ChunkedArray": "a column of such a table",
}
