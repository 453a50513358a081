"""Answers for people: figures, a page, and the terminal. Reads analysis results and tables; works without torch."""
