"""The pipeline file: its keys, its loading, and what can be checked of it offline."""
