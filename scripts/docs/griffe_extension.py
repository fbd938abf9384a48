"""What the Python reference needs beside griffe: an extension, which mkdocs.yml names.

The examples of docstrings become code. A call that the stub has only as overloads is a member.
"""

import re

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.S | re.M)


class Reference(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)

    def on_class(self, *, cls, **_):
        for name, overloads in cls.overloads.items():
            if name not in cls.members and overloads:
                cls.set_member(name, overloads[0])
                overloads[0].overloads = list(overloads)
