"""Columns of values as text, and back."""
