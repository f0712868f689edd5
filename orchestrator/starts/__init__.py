"""What earlier starts of servers took, and what the next may take."""
