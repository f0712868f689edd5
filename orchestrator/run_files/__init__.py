"""A run on disk: what is written while it goes on, and how it is read again."""
