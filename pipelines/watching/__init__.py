"""Status of running pipelines, for people and programs."""
