"""One store of objects under sources and sinks: a directory, or a bucket in S3."""
