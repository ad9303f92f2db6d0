"""The contracts: tables, changes of rows, and the log."""
