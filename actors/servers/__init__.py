"""One server on this host: what is started, how its life goes, and what it died of."""
