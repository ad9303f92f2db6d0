"""The history of captured tables and columns, and the re-reads that it requires."""
