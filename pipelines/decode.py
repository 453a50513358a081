"""The verifier's own answers: `decode_tokens`, `decode_runs`, `decode_attention`."""

from specstudy.command_line.entry import main
from specstudy.running.studies import decode

if __name__ == "__main__":
    main(decode)
