"""What everything else stands on: errors, clock, settings, units, addresses."""
