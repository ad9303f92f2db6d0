"""Values that lie somewhere in a buffer, made into columns: once in NumPy and once compiled."""
