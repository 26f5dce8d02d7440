"""Exchange of gradients and variables of Keras 3 and of TensorFlow's tapes, for Horovod's own modules and ours."""
