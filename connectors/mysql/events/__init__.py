"""Row events as changes of tables, with Debezium's source block."""
