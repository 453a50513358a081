"""The study of a verifier with experts, and which of them each token used: `routing_tokens`, `routing_layers`."""

from specstudy.command_line.entry import main
from specstudy.running.studies import routing

if __name__ == "__main__":
    main(routing)
