"""The console: a process of its own that shows pipelines, tables and their past in a browser."""
