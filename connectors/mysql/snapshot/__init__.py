"""Reading rows of tables beside the stream, chunk by chunk."""
