"""How commands find what they are about, and how they talk."""
