"""From measured points to an order of configs, fronts and reasons."""
