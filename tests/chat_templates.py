"""Chat templates of ten families, written down from their published formats, with tokenizers that have their markers.

Each tokenizer spells everything in bytes except the family's special tokens, so that a role's name is several tokens;
families whose BOS is added by the tokenizer too have that here.
"""

from __future__ import annotations

from dataclasses import dataclass

from small_tokenizers import CHATML, byte_level_tokenizer, with_bos
from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class Family:
    """A family's template, its special tokens (the BOS first if `has_bos`), and its default end of a text."""

    name: str
    template: str
    special: tuple[str, ...]
    has_bos: bool = True
    eos: str | None = None

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """A tokenizer that would also put the BOS before a text by itself, as most families' do."""
        bos = self.special[0] if self.has_bos else None
        # Byte-level tokenizers begin with 256 bytes; added tokens come after them, in order.
        processor = with_bos(bos, 256) if bos else None
        made = byte_level_tokenizer(self.template, self.special, bos=bos, post_processor=processor)
        if self.eos:
            made.eos_token = self.eos
        return made


_ALTERNATE = (
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
)
_SPLIT_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set turns = messages[1:] %}"
    "{% else %}{% set turns = messages %}{% endif %}"
)
CHATML_FAMILY = Family("ChatML", CHATML, ("<|im_start|>", "<|im_end|>"), has_bos=False)
QWEN25 = Family(
    "Qwen2.5",
    "{% if tools %}{{ '# Tools' }}{% endif %}"
    "{% if messages[0]['role'] == 'system' %}"
    "{{ '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}"
    "{% else %}"
    "{{ '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}"
    "{% endif %}"
    "{% for m in messages %}{% if m['role'] != 'system' or not loop.first %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    ("<|im_start|>", "<|im_end|>"),
    has_bos=False,
)
QWEN3 = Family(
    "Qwen3",
    "{% for m in messages %}{% set content = m['content'] %}"
    "{% if m['role'] == 'assistant' and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    "{% endif %}",
    ("<|im_start|>", "<|im_end|>", "<think>", "</think>"),
    has_bos=False,
)
LLAMA2 = Family(
    "Llama 2",
    _SPLIT_SYSTEM + "{% for m in turns %}" + _ALTERNATE + "{% if loop.index0 == 0 and system is defined %}"
    "{% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + m['content'] %}"
    "{% else %}{% set content = m['content'] %}{% endif %}"
    "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    ("<s>", "</s>"),
    eos="</s>",
)
LLAMA3 = Family(
    "Llama 3",
    "{{ bos_token }}"
    "{% if not date_string is defined %}{% if strftime_now is defined %}"
    "{% set date_string = strftime_now('%d %b %Y') %}{% else %}{% set date_string = '26 Jul 2024' %}{% endif %}"
    "{% endif %}"
    "{% if messages[0]['role'] == 'system' %}"
    "{% set system = messages[0]['content'] | trim %}{% set messages = messages[1:] %}"
    "{% else %}{% set system = '' %}{% endif %}"
    "{{ '<|start_header_id|>system<|end_header_id|>\n\n' }}"
    "{{ 'Cutting Knowledge Date: December 2023\nToday Date: ' + date_string + '\n\n' }}{{ system }}{{ '<|eot_id|>' }}"
    "{% for m in messages %}"
    "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
)
MISTRAL = Family(
    "Mistral",
    "{{ bos_token }}{% for m in messages %}" + _ALTERNATE + "{% if m['role'] == 'user' %}"
    "{{ '[INST] ' + m['content'] + ' [/INST]' }}"
    "{% elif m['role'] == 'assistant' %}{{ m['content'] + eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    ("<s>", "</s>"),
    eos="</s>",
)
MISTRAL_CONTROL_TOKENS = Family(
    "Mistral, its markers control tokens",
    _SPLIT_SYSTEM + "{{ bos_token }}{% for m in turns %}" + _ALTERNATE + "{% if m['role'] == 'user' %}"
    "{% if loop.last and system is defined %}{{ '[INST] ' + system + '\n\n' + m['content'] + '[/INST]' }}"
    "{% else %}{{ '[INST] ' + m['content'] + '[/INST]' }}{% endif %}"
    "{% else %}{{ ' ' + m['content'] | trim + eos_token }}{% endif %}{% endfor %}",
    ("<s>", "</s>", "[INST]", "[/INST]"),
    eos="</s>",
)
GEMMA3 = Family(
    "Gemma 3",
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}"
    "{% set prefix = messages[0]['content'] + '\n\n' %}{% set turns = messages[1:] %}"
    "{% else %}{% set prefix = '' %}{% set turns = messages %}{% endif %}"
    "{% for m in turns %}" + _ALTERNATE + "{% if m['role'] == 'assistant' %}{% set role = 'model' %}"
    "{% else %}{% set role = m['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + (prefix if loop.first else '') }}{{ m['content'] | trim }}"
    "{{ '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    ("<bos>", "<start_of_turn>", "<end_of_turn>"),
)
PHI3 = Family(
    "Phi-3",
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
    ("<s>", "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
    eos="<|endoftext|>",
)
PHI3_FIRST = Family(
    "Phi-3 as first published",
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}"
    "{{ '<|user|>\n' + m['content'] + '<|end|>\n<|assistant|>\n' }}"
    "{% elif m['role'] == 'assistant' %}{{ m['content'] + '<|end|>\n' }}{% endif %}{% endfor %}",
    PHI3.special,
)
DEEPSEEK_R1 = Family(
    "DeepSeek-R1",
    "{% set ns = namespace(system='') %}"
    "{% for m in messages %}{% if m['role'] == 'system' %}{% set ns.system = m['content'] %}{% endif %}{% endfor %}"
    "{{ bos_token }}{{ ns.system }}"
    "{% for m in messages %}"
    "{% if m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}"
    "{% elif m['role'] == 'assistant' %}{% set content = m['content'] %}"
    "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{ '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif %}",
    ("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<think>", "</think>"),
)
ZEPHYR = Family(
    "Zephyr",
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + eos_token + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
    ("<s>", "</s>"),
    eos="</s>",
)
FAMILIES = (
    *(CHATML_FAMILY, QWEN25, QWEN3, LLAMA2, LLAMA3, MISTRAL, MISTRAL_CONTROL_TOKENS, GEMMA3, PHI3, PHI3_FIRST),
    *(DEEPSEEK_R1, ZEPHYR),
)
