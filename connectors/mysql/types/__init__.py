"""Columns of MySQL and MariaDB as columns of the log."""
