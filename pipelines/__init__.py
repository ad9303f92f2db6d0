"""The runtime: what the command line runs, and the loops between sources, log and sinks."""
