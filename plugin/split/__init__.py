"""Split exchange: gradients are reduced to the rank that updates a parameter, whose new value is broadcast."""
