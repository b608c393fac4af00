"""What people look at: console tables, figures, the HTML report, notebook displays, Perfetto traces.

Each module stands alone, so that a command loads only what it shows; only ``figures`` loads matplotlib.
"""
