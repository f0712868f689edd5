"""Which configs are tried, how often, when enough is known: searches over a space of settings."""
