"""Files as a source, local or in S3: new, growing and rewritten files."""
