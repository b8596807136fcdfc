"""What works on all targets of an installation."""
