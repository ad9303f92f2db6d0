"""Source, log and targets compared at one position, and repaired."""
