"""What appends links to a chain: genesis, claims, epochs, and the operators' changes."""
