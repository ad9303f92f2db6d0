"""What running pipelines tell, and how people and programs see it."""
