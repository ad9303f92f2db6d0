"""Files as a sink: every change appended, as Parquet or JSON lines, local or in S3."""
