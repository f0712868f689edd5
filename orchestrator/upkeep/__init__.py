"""Hosts looked at and cleaned by hand: what each is, who occupies it, what dead runs left there."""
