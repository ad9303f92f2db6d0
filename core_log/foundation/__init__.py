"""Errors, clock, settings, units and addresses: the code that all other packages build on."""
