"""Tokenizers built in memory: byte-level ones that spell everything, with the chat templates that models use."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHATML_WITH_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou assist the user.\n\nBe kind.<|im_end|>\n' }}"
    "{% endif %}" + CHATML
)
# Sets `system` where there is a system message, and takes it off the messages.
SPLIT_OFF_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}"
    "{% set system = messages[0]['content'] %}{% set messages = messages[1:] %}"
    "{% endif %}"
)
LLAMA2 = SPLIT_OFF_SYSTEM + (
    "{% for message in messages %}{{ bos_token + '[INST] ' }}"
    "{% if system is defined %}{{ '<<SYS>>\n' + system + '\n<</SYS>>\n\n' }}{% endif %}"
    "{{ message['content'] | trim + ' [/INST]' }}{% endfor %}"
)
CHATML_MARKS = ("<|im_start|>", "<|im_end|>")


def byte_level_tokenizer(
    chat_template: str | None = None,
    special: Sequence[str | AddedToken] = (),
    merges: Sequence[tuple[str, str]] = (),
    bos: str | None = None,
    post_processor: processors.PostProcessor | None = None,
    extra_words: Sequence[str] = (),
) -> PreTrainedTokenizerFast:
    """Byte-level BPE without any training: the 256 bytes, `merges` in that order, `extra_words`, then `special`.

    Merges are written in the byte alphabet (a space is \u0120, a line feed \u010a) and may cross words.
    """
    vocabulary = sorted(ByteLevel.alphabet()) + [a + b for a, b in merges] + list(extra_words)
    ids = {token: index for index, token in enumerate(dict.fromkeys(vocabulary))}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    if post_processor is not None:
        tokenizer.post_processor = post_processor
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, chat_template=chat_template)


def with_bos(bos: str, bos_id: int) -> processors.PostProcessor:
    """What makes a tokenizer put `bos` before every text."""
    return processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, bos_id)])
