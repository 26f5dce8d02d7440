"""Codecs of gradients, and the choice of codec and collective for one optimizer or tape."""
