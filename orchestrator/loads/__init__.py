"""`specsweep load`, and several load processes as one, as the driver sees them."""
