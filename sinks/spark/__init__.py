"""Tables in a lake, written by Spark."""
