"""Copies of a log elsewhere, and a log made again from one."""
