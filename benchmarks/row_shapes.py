"""Why each shape that a row has on its way is needed."""

REASONS = {
    # PostgreSQL's stream
    "np.ndarray of uint8": "the buffer that the socket is read into, and the memory for"
    " decompressed records: both are used again and again",
    "bytes": "the frames of a few small transactions; values and records as they are written",
    "pa.StringArray": "a column of the server's text; no text is checked or converted twice",
    "RowChanges": "changes of one relation in columns of text: missing values are filled in here,"
    " before text gets a type",
    "WalBatch": "changes of several tables, with their transactions and the position behind them",
    # Changes
    "pa.RecordBatch": "typed rows; the contract of sources and sinks",
    "TableChanges": "rows with operations and places; the contract of sources and sinks",
    "PlacedChanges": "which transaction a change is of: an incremental snapshot drops its own rows"
    " by that",
    "ChangeBatch": "what becomes readable as a whole; the contract of sources",
    # Into the log
    "RowColumn": "a column with the encoding of its values, which compiled code reads too",
    "list of RowColumn, bytes": "an event or a header as parts; what rows share is written once",
    "pa.BinaryArray": "keys and values of records",
    "Encoded": "keys and values; a delete has two records",
    "memoryview": "parts of buffers without a copy",
    "bytearray": "a record batch, whose header is completed in place",
    "Batch": "a record batch with the figures of its header",
    "PartitionBatch": "a record batch and its partition: a table's go to several",
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
    "RecordField": "one field of many records as views: a copy costs more than reading",
    "RecordViews": "records as views into that buffer",
    "dict of values": "an event that is read strictly, one at a time",
    "DecodedChanges": "changes with the size of their records, which is reported and bounds parts",
    # Into the lake
    "InProcessWork": "changes that this process applies; Spark's are another class",
    "TableWork": "changes of a table until they are applied, here or in Spark, or their failure",
    "pa.Table": "rows under the table's columns, beside those of the file",
}
