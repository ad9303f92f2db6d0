"""A made-up shop, or one wide table, that changes by itself: for demonstrations, load and tests."""
