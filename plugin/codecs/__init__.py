"""How gradients travel: codecs, and the collectives that they go through."""
