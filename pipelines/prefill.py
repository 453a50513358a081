"""Attention over the prompts: `prefill_tokens`, `prefill_heads`, `prefill_prompts`."""

from specstudy.command_line.entry import main
from specstudy.running.studies import prefill

if __name__ == "__main__":
    main(prefill)
