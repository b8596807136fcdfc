"""Files of earlier formats, which can be read and imported."""
