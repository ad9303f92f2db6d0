"""Tests of the files in deploy/, each run by the program that it is for."""
