"""The binary log: events, rows, values, and the connection that streams them."""
