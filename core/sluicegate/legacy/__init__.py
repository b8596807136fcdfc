"""Files of earlier layouts, which are read and brought over."""
