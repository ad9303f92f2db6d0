"""Previews: the effects of a run or a command before it begins."""
