"""Changes as lines, for people who want to see them go by."""
