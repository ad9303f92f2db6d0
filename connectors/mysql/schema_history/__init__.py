"""The structure of tables with the position, and the DDL that changes it."""
