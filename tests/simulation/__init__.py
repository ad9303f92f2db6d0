"""A whole broker and its clients in one process, on virtual time, from one seed."""
