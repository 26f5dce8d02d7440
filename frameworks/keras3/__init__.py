"""Gradients and variables of Keras 3 and of TensorFlow's tapes on their way: under Horovod's own modules, and ours."""
