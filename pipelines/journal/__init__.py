"""What pipelines remember in the log itself."""
