"""The loops over bytes of the binary log and of a SELECT's rows: in Python, and compiled."""
