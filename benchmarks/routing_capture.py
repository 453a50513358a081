"""What watching the routers costs while the embedded mixture of experts decodes."""

from __future__ import annotations

import numpy as np
import transformers
from _common import figure, median_ratio, prompt_ids, seconds

from specstudy.config import local_path
from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.sampling import Warp
from specstudy.models import upcycled
from specstudy.models.device import choose_device, choose_dtype
from specstudy.models.load import load_pair
from specstudy.models.routers import watched_routers

N_TOKENS = 48


def main() -> None:
    transformers.logging.set_verbosity_error()
    device = choose_device("auto")
    draft = str(local_path("data/models/smollm2-draft"))
    pair = load_pair(upcycled.NAME, draft, device, choose_dtype("auto", device))
    ids = prompt_ids(pair)
    settings = GenerationSettings(Warp(0.7, 0.9), N_TOKENS, ())

    def plain() -> None:
        generate(pair.verifier, ids, settings, np.random.default_rng(0))

    def watched() -> None:
        with watched_routers(pair.verifier.module, pair.verifier.name) as watch:
            plain()
            watch.take(N_TOKENS)

    figure("routing_capture_cost", median_ratio(lambda: seconds(watched), lambda: seconds(plain)))


if __name__ == "__main__":
    main()
