"""Prompt files of every kind, whole and broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specstudy.errors import UserError
from specstudy.prompts import Columns, Message, Prompt, fields, files, read_prompt_file, read_prompts, select


def written(directory: Path, name: str, content: str | bytes) -> Path:
    path = directory / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(path: Path, columns: Columns | None = None) -> str:
    with pytest.raises(UserError) as refused:
        read_prompts(path, columns or Columns())
    message = str(refused.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def json_lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


class TestReading:
    def test_jsonl(self, tmp_path: Path) -> None:
        rows = [
            {"prompt_id": "a", "category": "code", "text": "x = {{ 1 }}\n", "system": "be brief"},
            {"prompt_id": 7, "text": "second", "note": [1]},
            {"text": "third", "prompt_id": None, "category": None, "system": ""},
        ]
        assert read_prompts(written(tmp_path, "mine.jsonl", json_lines(*rows))) == [
            Prompt("a", "code", "x = {{ 1 }}\n", "be brief"),
            Prompt("7", "own", "second", None),
            Prompt("mine-0003", "own", "third", ""),
        ]

    @pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
    def test_any_line_end_a_bom_and_blank_lines(self, tmp_path: Path, line_end: str) -> None:
        text = "\ufeff" + line_end.join(['{"text": "one"}', "", "  ", '{"text": "two"}'])
        assert [p.prompt_id for p in read_prompts(written(tmp_path, "p.jsonl", text))] == ["p-0001", "p-0004"]

    def test_a_line_separator_inside_a_text_does_not_split_it(self, tmp_path: Path) -> None:
        for separator in "\u2028\u2029\x85\x0b\x0c\x1c":
            line = json.dumps({"text": f"a{separator}b"}, ensure_ascii=False)
            assert read_prompts(written(tmp_path, "p.jsonl", line))[0].text == f"a{separator}b"
            [plain] = read_prompts(written(tmp_path, "p.txt", f"a{separator}b\r\n"))
            assert plain.text == f"a{separator}b"

    @pytest.mark.parametrize("prompt_id", ["../../etc/passwd", "x" * 300, "👩‍👩‍👧", "CON", "a/b\\c", "."])
    def test_ids_are_data(self, tmp_path: Path, prompt_id: str) -> None:
        path = written(tmp_path, "p.jsonl", json_lines({"prompt_id": prompt_id, "text": "t"}))
        assert read_prompts(path)[0].prompt_id == prompt_id

    @pytest.mark.parametrize("prompt_id", ["a\nb", "\x1b[31m", "\u202ea", "\u2066a", "a\u2028b", "nul\x00", "x" * 1001])
    def test_ids_are_a_line(self, tmp_path: Path, prompt_id: str) -> None:
        for name in ("prompt_id", "category"):
            message = refusal(written(tmp_path, "p.jsonl", json_lines({name: prompt_id, "text": "t"})))
            assert f"p.jsonl line 1: {name} must be" in message
            assert message.isprintable()
            assert len(message) < 300 + len(str(tmp_path))

    def test_a_files_odd_name_makes_ids_of_a_line(self, tmp_path: Path) -> None:
        [prompt] = read_prompts(written(tmp_path, "a\nb \udcff.txt", "Why?"))
        assert prompt.prompt_id == "a b ?-0001"

    def test_a_huge_line(self, tmp_path: Path) -> None:
        text = "word, " * 500_000
        assert read_prompts(written(tmp_path, "p.jsonl", json_lines({"text": text})))[0].text == text
        assert read_prompts(written(tmp_path, "p.csv", f'text\n"{text}"\n'))[0].text == text

    def test_csv_with_quotes_line_breaks_and_empty_fields(self, tmp_path: Path) -> None:
        content = '\ufefftext,prompt_id,category\r\n"two\r\nlines, ""quoted""",a,\r\nplain,,math\r\n'
        assert read_prompts(written(tmp_path, "p.csv", content)) == [
            Prompt("a", "own", 'two\r\nlines, "quoted"'),
            Prompt("p-0004", "math", "plain"),
        ]

    def test_parquet_with_nulls_and_another_type_of_id(self, tmp_path: Path) -> None:
        path = tmp_path / "key=value" / "p.parquet"
        path.parent.mkdir()
        frame = pd.DataFrame(
            {"prompt_id": [1, 2], "text": ["a", "b"], "category": [None, "code"], "other": [1.5, None]}
        )
        frame.to_parquet(path)
        assert read_prompts(path) == [Prompt("1", "own", "a"), Prompt("2", "code", "b")]

    def test_txt_is_a_prompt_a_line_whatever_the_text_column_is_called(self, tmp_path: Path) -> None:
        path = written(tmp_path, "p.TXT", "  one \n\ntwo")
        expected = [Prompt("p-0001", "own", "one"), Prompt("p-0003", "own", "two")]
        assert read_prompts(path) == read_prompts(path, Columns(text="question")) == expected

    def test_columns_of_other_names(self, tmp_path: Path) -> None:
        path = written(tmp_path, "p.jsonl", json_lines({"q": "why?", "id": "a", "kind": "factual", "text": 3}))
        columns = Columns(text="q", prompt_id="id", category="kind")
        assert read_prompts(path, columns) == [Prompt("a", "factual", "why?")]

    @pytest.mark.parametrize(
        ("row", "said"),
        [
            ({"prompt_id": "a"}, "(it has prompt_id); prompts.text_column"),
            ({}, "it has nothing"),
            ({"text": None}, "it has nothing; text empty"),
            ({"text": None}, "fill it in, or leave the row out"),
            ({"text": 5}, "text must be a string; got '5'"),
            ({"text": ["a"]}, "text must be a string"),
            ({"text": "  \n", "n": 1}, "it has n; text empty"),
            ({"text": [{"role": "user"}]}, "prompts.messages_column=text"),
            ({"text": "a", "prompt_id": 1.5}, "prompt_id must be a string"),
            ({"text": "a", "prompt_id": True}, "prompt_id must be a string"),
            ({"text": "a", "category": ["code"]}, "category must be a string"),
            ({"text": "a", "category": "all"}, "category 'all' is what the tables call a subset"),
            ({"text": "a", "category": "within_category"}, "prompts.category_column=none"),
            ({"text": "a", "system": {"x": 1}}, "system must be a string"),
            ({"a\nb": 1}, "it has a b"),
            ({"x" * 10_000: 1}, "x..."),
            ({"text": "a\ud800"}, "surrogate pair at character 1"),
            ("text", "line 1 is not a JSON object"),
            (["text"], "an array of objects belongs into a .json file"),
        ],
    )
    def test_a_wrong_row_is_one_line_saying_which(self, tmp_path: Path, row: object, said: str) -> None:
        assert said in refusal(written(tmp_path, "p.jsonl", json_lines(row)))

    @pytest.mark.parametrize(
        ("name", "content", "said"),
        [
            ("p.jsonl", b"", "holds no prompts"),
            ("p.jsonl", b"\xef\xbb\xbf\r\n \n", "holds no prompts"),
            ("p.csv", b"text\n", "holds no prompts"),
            ("p.txt", b"", "holds no prompts"),
            ("p.jsonl", b'{"text": "caf\xe9"}', "line 1 is not UTF-8 text (byte 13)"),
            ("p.txt", "caf\xe9".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
            ("p.txt", "a\nb\n".encode("utf-16-le"), "line 1 holds a NUL byte (byte 1), as UTF-16 text does"),
            pytest.param(
                "p.csv", b"text\n" + b"a" * 9000 + b"\xff", "line 2 is not UTF-8 text (byte 9005)", id="late byte"
            ),
            ("p.jsonl", b"\x1f\x8b\x08\x00zip", "is compressed with gzip; unpack it first"),
            ("p.csv", b"PK\x03\x04sheet", "is a ZIP archive or a spreadsheet"),
            ("p.jsonl", b'{"text": "a", "text": "b"}', "a name stands twice"),
            ("p.csv", b"text,text\na,b\n", "line 1 names a column twice"),
            ("p.csv", b"messages\nhello\n", "line 2: messages must be a list"),
            ("p.jsonl", b'{"text": "a"}\n{"text": ', "line 2 is not JSON"),
            ("p.jsonl", b'{"text": "a"} {"text": "b"}', "line 1 is not JSON"),
            pytest.param("p.jsonl", b'{"text": ' + b"[" * 100_000, "line 1 is not JSON", id="deep nesting"),
            pytest.param("p.jsonl", b'{"prompt_id": ' + b"9" * 5000 + b"}", "is not JSON", id="huge number"),
            ("p.jsonl", b'{"text": "a", "prompt_id": "1"}\n{"text": "b", "prompt_id": 1}', "'1' occurs twice"),
            ("p.jsonl", b'{"text": "a", "prompt_id": "p-0002"}\n{"text": "b"}', "'p-0002' occurs twice"),
            ("p.csv", b"prompt_id,text\n1,Hello, world\n", "line 2 has more fields than the header"),
            ("p.csv", b'text\n"never closed\n', "is not CSV"),
            ("p.csv", b"prompt_id;text\n1;Hello; world\n", "put quotes around a field that holds ';'"),
            ("p.csv", b"text,,\nWhy, or how?,,\n", "line 2 has more fields than the header"),
            ("p.csv", b'sep=;\ntext;n\n"a "b" c";1\n', "line 3 is not CSV"),
            ("p.jsonl.gz", b"{}", "is not a gzip file, or is cut off"),
            pytest.param("p.csv.gz", gzip.compress(b"text\nWhy?")[:-9], "is not a gzip file, or is cut off", id="cut"),
            ("p.csv", b"prompt_id,text\n1,\n", "line 2 has no text"),
            ("p.parquet", b"PAR1 no", "is not a Parquet file"),
            ("p.parquet", b"", "is not a Parquet file"),
            ("p.json", b'{"a": [{"text": "Why?"}], "b": []}', "nor an object that holds one array of them"),
            (
                "p.json",
                b'{"messages": [{"role": "user", "content": "Why?"}]}',
                "item 1 is a message; a conversation",
            ),
            ("p.json", b'[{"text": "Why?"},\n"How?"]', "item 2 is not an object with a text"),
            ("p.json", b'[{"text": "Why?"},\n{"text"]', "line 2 is not JSON"),
            ("p.md", b"{}", "unknown kind of file"),
            ("p", b"{}", "unknown kind of file"),
        ],
    )
    def test_a_wrong_file_is_one_line_saying_why(self, tmp_path: Path, name: str, content: bytes, said: str) -> None:
        assert said in refusal(written(tmp_path, name, content))

    def test_too_large(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "p.jsonl"
        with path.open("wb") as file:  # a hole: no disk is used, and nothing of it may be read
            file.truncate(500 * 2**20)
        assert "500 MiB, at most 128" in refusal(path)
        monkeypatch.setattr(fields, "MAX_TEXT_CHARACTERS", 1000)
        path = written(tmp_path, "p.csv", 'text\n"' + "a" * 1001 + '"\n')
        assert "line 2: text has 1,001 characters; at most 1,000" in refusal(path)

    def test_a_small_parquet_file_of_endless_repetitions(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "p.parquet"
        pd.DataFrame({"text": ["a" * 10_000] * 1000}).to_parquet(path)
        monkeypatch.setattr(files, "MAX_FILE_BYTES", 2**20)
        assert path.stat().st_size < 2**20
        assert "is too large (over 1 MiB)" in refusal(path)

    def test_parquet_of_wrong_types(self, tmp_path: Path) -> None:
        path = tmp_path / "p.parquet"
        pd.DataFrame({"text": [b"bytes"]}).to_parquet(path)
        assert "row 1: text must be a string" in refusal(path)
        pd.DataFrame({"text": []}).to_parquet(path)
        assert "holds no prompts" in refusal(path)
        pq.write_table(pa.Table.from_arrays([["a"], ["b"]], names=["text", "text"]), path)
        assert "names a column twice" in refusal(path)

    def test_no_file(self, tmp_path: Path) -> None:
        assert "no such file" in refusal(tmp_path / "absent.jsonl")
        (tmp_path / "folder.jsonl").mkdir()
        assert "is a directory" in refusal(tmp_path / "folder.jsonl")
        (tmp_path / "broken.jsonl").symlink_to(tmp_path / "nowhere")
        assert "no such file" in refusal(tmp_path / "broken.jsonl")
        assert "cannot be read" in refusal(tmp_path / ("x" * 300 + ".jsonl"))

    def test_select(self) -> None:
        prompts = [Prompt(f"{c}{i}", c, "t") for i in range(3) for c in ("code", "math")]
        assert select(prompts, None, None) == prompts
        assert [p.prompt_id for p in select(prompts, ["math"], 5)] == ["math0", "math1", "math2"]
        assert [p.prompt_id for p in select(prompts, None, 1)] == ["code0", "math0"]
        with pytest.raises(UserError, match="category 'maths'; there are code, math"):
            select(prompts, ["code", "maths"], None)

    @pytest.mark.parametrize(
        ("n", "chosen"), [(1, "a"), (2, "ac"), (3, "ace"), (4, "afce"), (5, "dbace"), (6, "dbafce"), (9, "dbafce")]
    )
    def test_some_of_a_category_are_spread_over_its_lengths(self, n: int, chosen: str) -> None:
        """By length the order is a, b, e, f, d, c; ranks 0, 2 (of 2.5) and 5 for three of them."""
        lengths = {"d": 30, "b": 20, "a": 10, "f": 20, "c": 10, "e": 20}
        prompts = [
            Prompt(prompt_id, "own", "x" * length, system="y" * 30 if prompt_id == "c" else None)
            for prompt_id, length in lengths.items()
        ]
        other = Prompt("other", "another", "x" * 15)
        assert "".join(p.prompt_id for p in select([*prompts, other], ["own"], n)) == chosen


HI, HO, WHY = ({"role": r, "content": c} for r, c in (("user", "Hi"), ("assistant", "Ho"), ("user", "Why?")))
BRIEF = {"role": "system", "content": "Be brief."}


SHAREGPT = [
    {"from": "system", "value": "Be brief."},
    {"from": "human", "value": "Hi"},
    {"from": "gpt", "value": "Ho"},
    {"from": "human", "value": "Why?"},
]


class TestMessages:
    def test_a_conversation(self, tmp_path: Path) -> None:
        rows = [{"messages": [BRIEF, HI, HO, WHY]}, {"messages": [WHY]}, {"messages": [WHY], "system": "Be brief."}]
        expected = [
            Prompt("p-0001", "own", "Why?", "Be brief.", (Message("user", "Hi"), Message("assistant", "Ho"))),
            Prompt("p-0002", "own", "Why?"),
            Prompt("p-0003", "own", "Why?", "Be brief."),
        ]
        assert read_prompts(written(tmp_path, "p.jsonl", json_lines(*rows))) == expected
        path = tmp_path / "p.parquet"
        pd.DataFrame(rows).to_parquet(path)
        assert read_prompts(path) == expected
        assert [m.role for m in expected[0].messages] == ["system", "user", "assistant", "user"]

    @pytest.mark.parametrize(
        ("messages", "said"),
        [
            ([], "it has nothing; messages empty"),
            ("Why?", "(in JSON or Parquet); got 'Why?'"),
            ({"role": "user", "content": "Why?"}, "messages must be a list"),
            (["Why?"], "messages[0] must be an object"),
            (
                [HI, {"role": "tool", "content": "4"}, WHY],
                "messages[1] has the role 'tool'",
            ),
            ([{"content": "Why?"}], "messages[0] has the role 'None'"),
            ([{"role": ["user"], "content": "Why?"}], "messages[0] has the role"),
            ([{"role": "user", "content": " \n"}], "messages[0] has no content"),
            ([HI, {**HO, "tool_calls": [1]}, WHY], "messages[1] holds 'tool_calls'"),
            ([{"from": "human", "value": "Hi", "role2": 1}], "messages[0] holds 'role2' besides from and value"),
            ([{"from": "tool", "value": "4"}], "messages[0] has the role 'tool'"),
            ([{"role": "user"}], "messages[0] has no content"),
            ([{"role": "user", "content": 4}], "the content of messages[0] must be a string"),
            ([{"role": "user", "content": [{"type": "text", "text": "Why?"}]}], "messages[0] is a list of parts; only"),
            ([{**WHY, "name": "Ann"}], "messages[0] holds 'name' besides role and content"),
            ([BRIEF], "none of messages is the user's"),
            ([HO], "none of messages is the user's"),
            ([HI, BRIEF, WHY], "a system message must be the first"),
            ([BRIEF, BRIEF, WHY], "a system message must be the first"),
        ],
    )
    def test_wrong_messages_are_one_line(self, tmp_path: Path, messages: object, said: str) -> None:
        message = refusal(written(tmp_path, "p.jsonl", json_lines({"text": "fine"}, {"messages": messages})))
        assert "p.jsonl line 2" in message
        assert said in message

    def test_only_one_of_two(self, tmp_path: Path) -> None:
        path = written(tmp_path, "p.jsonl", json_lines({"text": "Why?", "messages": [WHY]}))
        assert "line 1 has both text and messages" in refusal(path)
        path = written(tmp_path, "p.jsonl", json_lines({"system": "Be brief.", "messages": [BRIEF, WHY]}))
        assert "line 1 has both system and a system message" in refusal(path)

    @pytest.mark.parametrize(
        ("row", "columns"),
        [
            ({"conversations": SHAREGPT}, Columns()),
            ({"messages": SHAREGPT}, Columns()),
            ({"conversations": [BRIEF, HI, HO, WHY]}, Columns()),
            ({"chat": SHAREGPT, "text": "other"}, Columns(messages="chat")),
            ({"messages": [BRIEF, HI, {**HO, "tool_calls": [], "name": ""}, WHY], "text": ""}, Columns()),
            ({"messages": SHAREGPT, "text": "other"}, Columns(text="none")),
            ({"messages": [*SHAREGPT, HO, {"role": "tool", "content": "4"}]}, Columns()),
        ],
    )
    def test_forms_of_one_conversation(self, tmp_path: Path, row: object, columns: Columns) -> None:
        [prompt] = read_prompts(written(tmp_path, "p.jsonl", json_lines(row)), columns)
        assert [(m.role, m.content) for m in prompt.messages] == [
            ("system", "Be brief."),
            ("user", "Hi"),
            ("assistant", "Ho"),
            ("user", "Why?"),
        ]

    def test_what_stands_after_the_last_of_the_users_is_told(self, tmp_path: Path) -> None:
        path = written(tmp_path, "p.jsonl", json_lines({"messages": [WHY, HO]}, {"messages": [HI, HO, WHY]}))
        prompts, notes = read_prompt_file(path)
        assert [p.text for p in prompts] == ["Why?", "Why?"]
        assert notes == [f"{path}: 1 of 2 prompts end in an answer: the last message of the user gets answered"]


class TestColumns:
    def test_of_turns_the_first_is_the_prompt(self, tmp_path: Path) -> None:
        rows = [{"question_id": 1, "category": 3, "turns": ["Why?", "How?"]}, {"question_id": 2, "turns": ["So?"]}]
        path = written(tmp_path, "p.jsonl", json_lines(*rows))
        prompts, notes = read_prompt_file(path, Columns(prompt_id="question_id"))
        assert prompts == [Prompt("1", "3", "Why?"), Prompt("2", "own", "So?")]
        assert notes == [f"{path}: 1 of 2 prompts have several turns: the first is the prompt"]

    def test_what_is_not_used_is_told(self, tmp_path: Path) -> None:
        rows = [{"question": "2 + 3?", "answer": "5", "n": 0, "note": ""}, {"question": "3 + 3?", "answer": "6"}]
        path = written(tmp_path, "p.jsonl", json_lines(*rows))
        prompts, notes = read_prompt_file(path, Columns(text="question"))
        assert [p.text for p in prompts] == ["2 + 3?", "3 + 3?"]
        assert notes == [f"{path}: not used: answer, n"]

    def test_prompts_that_are_not_independent_carry_their_group(self, tmp_path: Path) -> None:
        rows = [{"text": "Why?", "subject": "sky"}, {"text": "So?", "subject": "sky"}, {"text": "Who?", "subject": ""}]
        path = written(tmp_path, "p.jsonl", json_lines(*rows))
        prompts, notes = read_prompt_file(path, Columns(group="subject"))
        assert ([p.group for p in prompts], notes) == (["sky", "sky", None], [])
        assert [p.group for p in read_prompt_file(path)[0]] == [None] * 3

    def test_none_is_no_column_even_of_that_name(self, tmp_path: Path) -> None:
        path = written(tmp_path, "p.jsonl", json_lines({"text": "Why?", "none": "no", "prompt_id": "a"}))
        prompts, notes = read_prompt_file(path, Columns(prompt_id="none", category="none"))
        assert prompts == [Prompt("p-0001", "own", "Why?")]
        assert notes == [f"{path}: not used: none, prompt_id"]

    def test_a_context_follows_the_text_where_it_is_asked_for(self, tmp_path: Path) -> None:
        rows = [{"instruction": "Add.", "input": "2, 3", "output": "5"}, {"instruction": "Why?", "input": ""}]
        path = written(tmp_path, "p.json", json.dumps(rows))
        prompts, notes = read_prompt_file(path, Columns(text="instruction", context="input"))
        assert [p.text for p in prompts] == ["Add.\n\n2, 3", "Why?"]
        assert notes == [f"{path}: not used: output"]
        without, notes = read_prompt_file(path, Columns(text="instruction"))
        assert [p.text for p in without] == ["Add.", "Why?"]
        assert notes == [f"{path}: not used: input, output; prompts.context_column=input puts it after the text"]

    @pytest.mark.parametrize(
        ("row", "columns", "said"),
        [
            ({"answer": "5", "question": "Why?"}, Columns(), "prompts.text_column=question"),
            ({"input": "5", "instruction": "Why?"}, Columns(), "prompts.text_column=instruction takes instruction"),
            ({"Text": "Why?"}, Columns(), "prompts.text_column=Text takes Text"),
            ({"prompt": ["Why?", "How?"]}, Columns(), "prompts.text_column=prompt takes prompt"),
            ({"conversation": [WHY]}, Columns(), "prompts.messages_column=conversation"),
            ({"queston": "Why?", "text": "a"}, Columns(text="question"), "prompts.text_column=queston takes queston"),
            (
                {"text": "a", "messages": [WHY]},
                Columns(messages="chat"),
                "prompts.messages_column=messages",
            ),
            ({"text": "a"}, Columns(prompt_id="id"), "prompts.id_column=id: no row of"),
            ({"text": "a"}, Columns(context="input"), "prompts.context_column=input: no row of"),
            ({"text": "a"}, Columns(group="subject"), "prompts.group_column=subject: no row of"),
        ],
    )
    def test_the_likely_setting_is_named(self, tmp_path: Path, row: object, columns: Columns, said: str) -> None:
        assert said in refusal(written(tmp_path, "p.jsonl", json_lines(row)), columns)


class TestFormats:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("p.json", '[{"text": "a, b"}, {"text": "c"}]'),
            ("p.json", '{"version": 2, "prompts": [{"text": "a, b"}, {"text": "c"}]}'),
            ("p.json", '{"text": "a, b"}\n{"text": "c"}\n'),
            ("p.jsonl.gz", gzip.compress(b'{"text": "a, b"}\n{"text": "c"}\n', mtime=0)),
            ("p.txt.gz", gzip.compress(b"a, b\nc", mtime=0)),
            ("p.tsv", "text\tcategory\na, b\t\nc\t\n"),
            ("p.csv", "text\tn\r\na, b\t1\r\nc\t2\r\n"),
            ("p.csv", "n;text\n1;a, b\n2;c\n"),
            ("p.csv", 'sep=;\r\ntext;n\r\n"a, b";1\r\nc;2\r\n'),
            ("p.csv", 'text,n,,\n"a, b",1,,\nc,2,,\n,,,\n'),
            ("p.csv", '"n", "text"\n1, "a, b"\n2, "c"\n'),
            ("p.csv", ',text\n0,"a, b"\n1,c\n'),
        ],
    )
    def test_one_set_in_many_forms(self, tmp_path: Path, name: str, content: str | bytes) -> None:
        assert [p.text for p in read_prompts(written(tmp_path, name, content))] == ["a, b", "c"]

    def test_a_space_before_what_is_not_quoted_stays(self, tmp_path: Path) -> None:
        path = written(tmp_path, "p.csv", 'n,text\n1, a\n2,"b, ""c"", "\n')
        assert [p.text for p in read_prompts(path)] == [" a", 'b, "c", ']

    def test_ids_without_both_endings(self, tmp_path: Path) -> None:
        [prompt] = read_prompts(written(tmp_path, "mine.txt.gz", gzip.compress(b"Why?")))
        assert prompt.prompt_id == "mine-0001"

    def test_one_object_with_a_text_is_a_prompt_whatever_else_it_holds(self, tmp_path: Path) -> None:
        path = written(tmp_path, "p.json", '{"text": "Which?", "choices": [{"text": "this"}, {"text": "that"}]}')
        assert [p.text for p in read_prompts(path)] == ["Which?"]

    @pytest.mark.parametrize("name", ["p.txt", "p.jsonl", "p.csv", "p.parquet"])
    @pytest.mark.parametrize("before", ["", "\ufeff", "\n"])
    def test_a_git_lfs_pointer_is_no_prompts(self, tmp_path: Path, name: str, before: str) -> None:
        pointer = f"{before}version https://git-lfs.github.com/spec/v1\noid sha256:{64 * '0'}\nsize 123\n"
        assert "is a Git LFS pointer, not the file itself; `git lfs pull`" in refusal(written(tmp_path, name, pointer))
