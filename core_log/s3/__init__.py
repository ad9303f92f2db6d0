"""Objects in S3 and what speaks like it: the one place that knows boto3."""
