"""After a ranking: why, what is deployed, and whether it holds when measured again."""
