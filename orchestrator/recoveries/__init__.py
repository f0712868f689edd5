"""What follows the death of a server: a repair, another try, or the end of its config."""
