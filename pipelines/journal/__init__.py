"""The records that pipelines keep in the log itself."""
