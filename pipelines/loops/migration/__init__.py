"""From one generation of a topic to the next."""
