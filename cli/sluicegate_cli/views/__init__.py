"""What results of the library look like, where several commands show the same kind of thing."""
