"""Delta tables: files by our own writers, and a commit that carries rows and offsets."""
