"""This host as a whole: what it is, which runs live on it, what is left of dead ones."""
