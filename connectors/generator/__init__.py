"""A generated shop, or one wide table, with a stream of changes: for demonstrations, load and
tests."""
