"""Catalogues that the tests fill."""

import shutil
import subprocess
from pathlib import Path

import pytest

PO = r"""# Our catalogue.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: zh_CN\n"
"Plural-Forms: nplurals=1; plural=0;\n"

#. For the menu.
#: menu.c:12
msgctxt "menu"
msgid "_Open the door."
msgstr ""

#: main.c:3
msgid "I love you."
msgstr "我爱你。"

#: main.c:4
#, fuzzy
msgid "I am a cat."
msgstr "我是狗。"

#: main.c:5
#, c-format
msgid "I have %d cats and %s.\n"
msgstr ""

#, c-format
msgid "A cat."
msgid_plural "%d cats."
msgstr[0] ""

#: main.c:9
msgid ""
"Where are you?\n"
"I am at home."
msgstr ""

msgctxt "again"
msgid "I love you."
msgstr ""

#, python-brace-format
msgid "Hello, <b>{name}</b>! See https://example.org/{{x}}."
msgstr ""

#, c-format
msgid "%s"
msgstr ""

#~ msgid "Old."
#~ msgstr "旧。"
"""

XLIFF_1 = """<?xml version="1.0" encoding="utf-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file original="a" source-language="en" target-language="zh" datatype="plaintext">
    <body>
      <trans-unit id="1"><source>I love you.</source>
        <target state="translated">我爱你。</target></trans-unit>
      <trans-unit id="2"><source>Where is {name} &amp; the cat?</source></trans-unit>
      <trans-unit id="3"><source>An <x id="1"/> element.</source></trans-unit>
    </body>
  </file>
</xliff>
"""

XLIFF_2 = """<?xml version="1.0" encoding="utf-8"?>
<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="zh">
  <file id="f">
    <unit id="1"><segment><source>I love you.</source><target>我爱你。</target></segment></unit>
    <unit id="2"><segment><source>Where is {name}?</source></segment></unit>
  </file>
</xliff>
"""


def check_with_msgfmt(path: Path) -> None:
    """gettext itself accepts the file, drafts included."""
    if shutil.which("msgfmt") is None:
        pytest.skip("gettext is not installed")
    command = ["msgfmt", "-c", "--use-fuzzy", "-o", "/dev/null", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
