"""One thread per process: small tests are fastest so, and timings do not depend on the machine's cores."""

import torch

torch.set_num_threads(1)
