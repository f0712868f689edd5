"""After a ranking: its order again, why it is so, and whether it holds when measured again."""
