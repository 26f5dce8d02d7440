"""hvd.Pipeline for Keras 3: linear chains of layers, on TensorFlow and on PyTorch."""
