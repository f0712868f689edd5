"""What trials say together: values, intervals, who is best."""
