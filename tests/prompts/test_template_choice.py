"""Chat templates before any work: which one, whether it ends, whether it has the switch that is asked for."""

from __future__ import annotations

import sys
import threading
from functools import partial

import pytest
from chat_templates import MISTRAL, QWEN3
from small_tokenizers import CHATML, CHATML_MARKS, byte_level_tokenizer
from transformers import PreTrainedTokenizerFast

from specstudy.errors import UserError
from specstudy.prompts import Message, Prompt, chat_template, render, use_template
from specstudy.prompts.bounded import OutOfBoundsError, bounded

ALONE = Prompt("p", "own", "Why?")
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}" + CHATML
THINKING = CHATML + "{{ '<think>' if thinking is defined and thinking else '<think></think>' }}"
OTHER = "Q: {{ messages[0].content }} A:"
NAMED = {"rag": CHATML, "tools\x1b[31m": OTHER}


def tokenizer_with(template: str | dict[str, str] | None) -> PreTrainedTokenizerFast:
    made = byte_level_tokenizer(None, CHATML_MARKS)
    made.chat_template = template
    return made


def refusal(template: str | dict[str, str] | None, name: str = "default", thinking: bool | None = None) -> str:
    with pytest.raises(UserError) as refused:
        use_template(tokenizer_with(template), "models.verifier=m", name, thinking)
    assert str(refused.value).isprintable()
    return str(refused.value)


class TestNamed:
    @pytest.mark.parametrize(("name", "text"), [("default", "Q: Why? A:"), ("rag", "<|im_start|>user")])
    def test_the_default_or_the_one_that_is_named(self, name: str, text: str) -> None:
        tokenizer = tokenizer_with({"rag": CHATML, "default": OTHER})
        use_template(tokenizer, "m", name, None)
        assert render(ALONE, tokenizer).text.startswith(text)

    def test_without_a_default_one_has_to_be_named(self) -> None:
        assert refusal(NAMED) == (
            "models.verifier=m has several chat templates, none of them default; "
            "give prompts.template=rag, prompts.template=tools [31m"
        )
        assert "none of them tool;" in refusal(NAMED, "tool")

    @pytest.mark.parametrize("template", [CHATML, None])
    def test_a_name_where_there_are_none(self, template: str | None) -> None:
        assert refusal(template, "rag") == "prompts.template=rag: models.verifier=m has no chat templates with names"


class TestThinking:
    def test_a_switch_of_either_name(self) -> None:
        tokenizer = tokenizer_with(THINKING)
        use_template(tokenizer, "m", "default", True)
        assert render(ALONE, tokenizer, thinking=True).generation_prompt.endswith("<think>")
        assert render(ALONE, tokenizer, thinking=False).generation_prompt.endswith("</think>")
        use_template(QWEN3.tokenizer(), "m", "default", False)

    @pytest.mark.parametrize("template", [CHATML, MISTRAL.template, None])
    def test_none_is_told(self, template: str | None) -> None:
        assert refusal(template, thinking=False) == (
            "prompts.thinking=false: models.verifier=m has no chat template with such a switch; leave it at null"
        )

    def test_a_template_that_refuses_what_is_tried_is_not_judged(self) -> None:
        use_template(tokenizer_with("{{ raise_exception('no') }}"), "m", "default", True)


class TestBounds:
    def test_a_template_without_end_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(chat_template, "bounded", partial(bounded, max_lines=100_000))
        assert refusal(ENDLESS) == "models.verifier=m: the chat template comes to no end within reasonable time"
        with pytest.raises(ValueError, match="comes to no end"):
            render(ALONE, tokenizer_with(ENDLESS))

    @pytest.mark.parametrize(
        ("template", "said"),
        [
            ("{{ 'a' * 17000000 }}{{ messages[0].content }}", "makes 17,000,008 characters of this prompt"),
            ("{{ 'a' * 10 ** 15 }}{{ messages[0].content }}", "refuses this prompt: MemoryError"),
            ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "refuses this prompt: maximum recursion"),
            ("{{ raise_exception('\x1b]0;x\x07\x1b[31m \u202eevil') }}", "refuses this prompt: ]0;x [31m evil"),
        ],
    )
    def test_what_a_template_may_do_is_bounded(self, template: str, said: str) -> None:
        with pytest.raises(ValueError, match="the chat template ") as refused:
            render(ALONE, tokenizer_with(template))
        assert said in str(refused.value)
        assert str(refused.value).isprintable()

    def test_lines_and_characters_are_counted_in_any_thread(self) -> None:
        stopped: list[bool] = []

        def text() -> str:
            return "a" * 100

        def run() -> None:
            for limits in ({"max_lines": 1000}, {"max_characters": 1000}):
                try:
                    with bounded(**limits):
                        for _ in range(100_000):
                            text()
                except OutOfBoundsError:
                    stopped.append(True)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert stopped == [True, True]

    def test_who_traced_before_goes_on_after(self) -> None:
        before = sys.gettrace()
        with bounded():
            assert sys.gettrace() is not before
        assert sys.gettrace() is before


HIDES_AN_EMPTY_ONE = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}"
    "{% else %}{% set system = 'Be kind.' %}{% endif %}"
    "{% if system %}{{ '<|im_start|>system\n' + system + '<|im_end|>\n' }}{% endif %}" + CHATML
)


@pytest.mark.parametrize("history", [(), (Message("user", "Hi"), Message("assistant", "Ho"))])
def test_an_empty_system_text_that_is_not_shown_is_no_change(history: tuple[Message, ...]) -> None:
    rendered = render(Prompt("p", "own", "Why?", "", history), tokenizer_with(HIDES_AN_EMPTY_ONE))
    plain = render(Prompt("p", "own", "Why?", None, history), tokenizer_with(CHATML))
    assert rendered.text == plain.text
    assert rendered.positions == plain.positions
    assert rendered.notes == ()
