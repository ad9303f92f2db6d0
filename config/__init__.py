"""The YAML file: read, checked and explained."""
