"""Whether a study can run here: device, precision, model files, tokenizers, memory."""

from specstudy.command_line.entry import main
from specstudy.running.doctor import doctor

if __name__ == "__main__":
    main(doctor)
