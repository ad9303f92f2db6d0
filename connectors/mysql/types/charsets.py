"""Character sets of MySQL as codecs of Python; a text that is not valid in its own is an error."""

from collections.abc import Callable

from headwater.core_log.foundation.errors import SourceRejected

CODECS = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf8": "utf-8",
    "ascii": "ascii",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "big5": "big5",
    "sjis": "cp932",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "euckr": "euc_kr",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "ucs2": "utf-16-be",
}
"""latin1 is cp1252, but every byte means something."""
LATIN1 = "".join(
    bytes([code]).decode("cp1252", errors="replace").replace("\ufffd", chr(code))
    for code in range(256)
)
Decode = Callable[[bytes], str]


def knows(charset: str) -> bool:
    return charset == "latin1" or charset in CODECS


def text_decoder(charset: str, *, column: str) -> Decode:
    """Returns the decoder; it raises for bytes that are no text of the character set."""
    if charset == "latin1":
        return lambda data: data.decode("latin-1").translate(TRANSLATED)
    codec = CODECS[charset]

    def decode(data: bytes) -> str:
        try:
            return data.decode(codec)
        except UnicodeDecodeError:
            raise SourceRejected(
                "a text is not valid in the character set of its column",
                column=column,
                charset=charset,
                hint="correct the text, or convert the column to VARBINARY",
            ) from None

    return decode


TRANSLATED = {code: char for code, char in enumerate(LATIN1) if chr(code) != char}
