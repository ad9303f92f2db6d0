"""Which data comes from which: events of OpenLineage for sinks."""
