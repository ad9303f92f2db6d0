"""What values of PostgreSQL's types mean, and how text becomes columns of them."""
