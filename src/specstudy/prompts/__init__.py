"""Prompts: read them, render them with the chat template, and tell what the user wrote from what the template added."""

from specstudy.prompts.choice import use_template
from specstudy.prompts.columns import Columns
from specstudy.prompts.prompt import Message, Position, Prompt, RenderedPrompt
from specstudy.prompts.reading import read_prompt_file, read_prompts, select
from specstudy.prompts.rendering import render

__all__ = [
    "Columns",
    "Message",
    "Position",
    "Prompt",
    "RenderedPrompt",
    "read_prompt_file",
    "read_prompts",
    "render",
    "select",
    "use_template",
]
