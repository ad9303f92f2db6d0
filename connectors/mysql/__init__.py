"""Source: MySQL and MariaDB, from the binary log and a snapshot."""
