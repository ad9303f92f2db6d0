"""What would happen, before it does."""
