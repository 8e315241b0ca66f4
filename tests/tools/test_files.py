"""Files: the bytes decide what a file is; a file that cannot be shown is named."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from tests.tools.answering import ADAPTER, BINARY, IMAGES, PDF, error, png, read_said, send, text
from toolloop.responses import FileResponse


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image(data: bytes, media_type: str) -> list[dict[str, Any]]:
    return [{"type": "image", "source": {"type": "base64", "media_type": media_type, "data": encode(data)}}]


def test_an_image_has_the_media_type_of_its_bytes() -> None:
    """The declared type does not matter."""
    for claimed in ("image/png", "image/svg+xml", "text/plain", "nonsense"):
        for media_type, data in IMAGES.items():
            assert send(FileResponse("file", claimed, data)) == image(data, media_type)


def test_a_pdf_is_a_document_with_its_name_as_title() -> None:
    """A title is short, and never blank."""
    for claimed in ("application/pdf", "image/png", "text/plain"):
        source = {"type": "base64", "media_type": "application/pdf", "data": encode(PDF)}
        assert send(FileResponse("report.pdf", claimed, PDF)) == [
            {"type": "document", "source": source, "title": "report.pdf"}
        ]
        assert len(send(FileResponse("r" * 900, claimed, PDF))[0]["title"]) == 500
        assert send(PDF) == [{"type": "document", "source": source}]


def test_a_text_file_is_sent_as_its_text() -> None:
    """Decoded by its byte order mark, its charset, or as UTF-8."""
    cases: list[tuple[str, bytes, str]] = [
        ("text/plain", "é\n".encode(), "é\n"),
        ("text/csv", b"a,b\n1,2\n", "a,b\n1,2\n"),
        ("text/plain; charset=latin-1", b"\xe9", "é"),
        ('text/html; charset="ISO-8859-1"', b"\xe9", "é"),
        ("text/plain; charset=no-such", b"a", "a"),
        ("text/plain; charset=rot13", b"a", "a"),
        ("text/plain; charset=ascii", "é".encode(), "é"),
        ("text/plain", "é".encode("utf-8-sig"), "é"),
        ("text/plain; charset=latin-1", "é".encode("utf-16"), "é"),
        ("text/plain", b"\x1b[1mbold\x1b[0m\x00", "\x1b[1mbold\x1b[0m\x00"),
        ("application/json", b'{"a": 1}', '{"a": 1}'),
        ("application/octet-stream", b"plain\ttext\r\n", "plain\ttext\r\n"),
        ("application/pdf", b"<html>not found</html>", "<html>not found</html>"),
        ("nonsense", b"text", "text"),
    ]
    for mime_type, data, words in cases:
        assert read_said(FileResponse("a", mime_type, data)) == words


NOTHING_KNOWN = "it is empty, or not a jpeg, png, gif or webp image, a PDF or text."
NAMED: dict[str, tuple[FileResponse, str]] = {
    "svg": (
        FileResponse("a.svg", "image/svg+xml", b"<svg/>"),
        f"a.svg (image/svg+xml, 6 bytes) is not shown: {NOTHING_KNOWN}",
    ),
    "sound": (FileResponse("a.wav", "audio/wav", b"RIFF\0\0\0\0WAVE"), "a.wav (audio/wav, 12 bytes) is not shown"),
    "zip": (FileResponse("a.zip", "application/zip", BINARY), NOTHING_KNOWN),
    "control characters": (FileResponse("a.bin", "application/octet-stream", b"a\0b"), NOTHING_KNOWN),
    "bytes that are not text": (FileResponse("a.txt", "text/plain", b"\xff\xff\xff"), NOTHING_KNOWN),
    "too large": (
        FileResponse("a.png", "image/png", png(size=3_932_160)),
        "it has more than 5,242,880 bytes as base64, the limit for an image",
    ),
    "a large PDF": (
        FileResponse("a.pdf", "application/pdf", PDF + bytes(25_165_824)),
        "it has more than 24,117,248 bytes",
    ),
    "empty": (FileResponse("a.png", "image/png", b""), NOTHING_KNOWN),
    "blank": (FileResponse("a.txt", "text/plain", b" \n"), NOTHING_KNOWN),
    "without an extension": (FileResponse("photo", "image/bmp", b"BM\xff"), "photo.bmp (image/bmp, 3 bytes)"),
    "a lone surrogate": (
        FileResponse("\ud800", "\ud800", BINARY),
        "\N{REPLACEMENT CHARACTER} (\N{REPLACEMENT CHARACTER}, 6",
    ),
}


def test_a_file_that_cannot_be_shown_is_named() -> None:
    """With its name, its type, its size and the reason. It is not an error."""
    for file, says in NAMED.values():
        assert says in read_said(file)


def test_bytes_are_a_file_without_a_name() -> None:
    """An image, a document, a text, or named."""
    cases: list[tuple[Any, Any]] = [
        (b"text", text("text")),
        (bytearray(b"text"), text("text")),
        (memoryview(b"text"), text("text")),
        (png(), image(png(), "image/png")),
        (b"", text(f"[file] (application/octet-stream, 0 bytes) is not shown: {NOTHING_KNOWN}")),
    ]
    for data, content in cases:
        assert send(data) == content


def test_a_path_is_the_file_at_that_path(tmp_path: Path) -> None:
    """It is read when the result is made; its name may be blank."""
    (tmp_path / "a.csv").write_text("a,b\n")
    (tmp_path / "a.txt").write_bytes(png())
    (tmp_path / "a.gz").write_bytes(b"\x1f\x8b\x00")
    (tmp_path / " ").write_bytes(PDF)
    assert read_said(tmp_path / "a.csv") == "a,b\n"
    assert send(tmp_path / "a.txt") == image(png(), "image/png")
    assert read_said(tmp_path / "a.gz").startswith("a.gz (application/")
    assert [block.keys() for block in send(tmp_path / " ")] == [{"type", "source"}]


def test_a_path_that_cannot_be_read_is_an_error_result(tmp_path: Path) -> None:
    """The text names the path and the reason."""
    assert f"the file {str(tmp_path / 'gone')!r} cannot be read: No such file or directory" in error(tmp_path / "gone")
    assert "cannot be read: Is a directory" in error(tmp_path)
    assert "embedded null" in error(Path("a\0b"))


def test_a_path_to_a_huge_file_is_named(tmp_path: Path) -> None:
    """Only as many bytes are read as a request may hold."""
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(40_000_000)
    assert "a.txt (text/plain, 24,117,249 bytes) is not shown: it has more than 24,117,248" in read_said(
        tmp_path / "a.txt"
    )


def test_the_plain_text_of_a_file_is_its_name_with_an_extension() -> None:
    """The path is not read."""
    cases: list[tuple[Any, str]] = [
        (FileResponse("report.pdf", "application/pdf", b""), "report.pdf"),
        (FileResponse("report", "application/pdf", b""), "report.pdf"),
        (FileResponse("photo", "image/jpeg", b""), "photo.jpg"),
        (FileResponse("notes", "text/plain; charset=utf-8", b""), "notes.txt"),
        (FileResponse("thing", "application/x-unknown", b""), "thing"),
        (Path("no") / "such" / "file.csv", "file.csv"),
        (b"\0", "[file]"),
    ]
    for response, name in cases:
        assert getattr(response, "file_name", name) == name
        assert ADAPTER.to_plain_text(response) == name
