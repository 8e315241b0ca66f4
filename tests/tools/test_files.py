"""Files: what a file is, is read from its bytes; what cannot be shown is named, and why."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import imagesize  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.answering import ADAPTER, BINARY, IMAGES, PDF, answer, error, gif, png, said, sent, text
from toolloop.responses import FileResponse


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image(data: bytes, media_type: str) -> list[dict[str, Any]]:
    return [{"type": "image", "source": {"type": "base64", "media_type": media_type, "data": encoded(data)}}]


@pytest.mark.parametrize(("media_type", "data"), IMAGES.items(), ids=IMAGES)
@pytest.mark.parametrize(
    "claimed", ["image/png", "image/svg+xml", "text/plain", "application/octet-stream", "nonsense"]
)
def test_an_image_is_an_image_whatever_it_is_called(media_type: str, data: bytes, claimed: str) -> None:
    """The media type is that of its bytes."""
    assert sent(FileResponse("file", claimed, data)) == image(data, media_type)


@pytest.mark.parametrize("claimed", ["application/pdf", "image/png", "text/plain"])
def test_a_pdf_is_a_document_with_its_name_as_title(claimed: str) -> None:
    """Whatever it is called."""
    source = {"type": "base64", "media_type": "application/pdf", "data": encoded(PDF)}
    assert sent(FileResponse("report.pdf", claimed, PDF)) == [
        {"type": "document", "source": source, "title": "report.pdf"}
    ]
    assert len(sent(FileResponse("r" * 900, claimed, PDF))[0]["title"]) == 500
    assert sent(FileResponse(" " * 600 + ".pdf", claimed, PDF))[0]["title"] == ".pdf"
    assert sent(PDF) == [{"type": "document", "source": source}]


def test_a_title_is_never_blank(tmp_path: Path) -> None:
    """A name may be."""
    (tmp_path / " ").write_bytes(PDF)
    assert [block.keys() for block in sent(tmp_path / " ")] == [{"type", "source"}]


@pytest.mark.parametrize(
    ("mime_type", "data", "words"),
    [
        ("text/plain", "é\n".encode(), "é\n"),
        ("text/csv", b"a,b\n1,2\n", "a,b\n1,2\n"),
        ("text/plain; charset=latin-1", b"\xe9", "é"),
        ('text/html; charset="ISO-8859-1"', b"\xe9", "é"),
        ("text/plain; charset=utf-16-be", "é".encode("utf-16-be"), "é"),
        ("text/plain; charset=no-such", b"a", "a"),
        ("text/plain; charset=rot13", b"a", "a"),
        ("text/plain; charset=ascii", "é".encode(), "é"),
        ("text/plain", "é".encode("utf-8-sig"), "é"),
        ("text/plain; charset=latin-1", "é".encode("utf-16"), "é"),
        ("text/plain", "é".encode("utf-32"), "é"),
        ("text/plain", b"\x1b[1mbold\x1b[0m\x00", "\x1b[1mbold\x1b[0m\x00"),
        ("application/json", b'{"a": 1}', '{"a": 1}'),
        ("application/xml", b"<a/>", "<a/>"),
        ("application/x-yaml", b"a: 1", "a: 1"),
        ("application/octet-stream", b"plain\ttext\r\n", "plain\ttext\r\n"),
        ("application/pdf", b"<html>not found</html>", "<html>not found</html>"),
        ("nonsense", b"text", "text"),
    ],
)
def test_a_text_file_is_its_text(mime_type: str, data: bytes, words: str) -> None:
    """By its byte order mark, its charset, or as UTF-8."""
    assert said(FileResponse("a", mime_type, data)) == words


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"/>'
NAMED: dict[str, tuple[FileResponse, str]] = {
    "svg": (
        FileResponse("a.svg", "image/svg+xml", SVG),
        "The file 'a.svg' (image/svg+xml, 41 bytes) is not shown: only jpeg, png",
    ),
    "bmp": (
        FileResponse("a.bmp", "image/bmp", b"BM\xff"),
        "(image/bmp, 3 bytes) is not shown: only jpeg, png, gif and webp",
    ),
    "tiff": (FileResponse("a.tiff", "image/tiff", b"II*\0"), "only jpeg, png, gif and webp"),
    "sound": (FileResponse("a.wav", "audio/wav", b"RIFF\0\0\0\0WAVE"), "(audio/wav, 12 bytes) is not shown"),
    "zip": (FileResponse("a.zip", "application/zip", BINARY), "it is neither an image, a PDF nor text"),
    "control characters": (
        FileResponse("a.bin", "application/octet-stream", b"a\0b"),
        "neither an image, a PDF nor text",
    ),
    "no text": (
        FileResponse("a.txt", "text/plain", b"\xff\xff"),
        "'a.txt' (text/plain, 2 bytes) is not shown: it is not text in",
    ),
    "cut off": (
        FileResponse("a.png", "image/png", png()[:18]),
        "(image/png, 18 bytes) is not shown: the image is damaged or cut off",
    ),
    "without pixels": (FileResponse("a.gif", "image/gif", gif(0, 0)), "the image is damaged or cut off"),
    "a broken jpeg": (FileResponse("a.jpg", "image/jpeg", b"\xff\xd8\xff\xe0"), "the image is damaged or cut off"),
    "a broken webp": (FileResponse("a.webp", "image/webp", b"RIFF\0\0\0\0WEBPVP8 "), "the image is damaged"),
    "too wide": (FileResponse("a.png", "image/png", png(8001, 1)), "it is 8001 x 1 pixels, and a side may have 8000"),
    "too high": (FileResponse("a.gif", "image/gif", gif(1, 9000)), "it is 1 x 9000 pixels"),
    "too large": (
        FileResponse("a.png", "image/png", png(size=3_932_160)),
        "it has 5,242,924 bytes as base64, and an image may have 5,242,880",
    ),
    "a large PDF": (
        FileResponse("a.pdf", "application/pdf", PDF + bytes(25_165_824)),
        "and a result takes 32,505,856",
    ),
    "empty": (FileResponse("a.png", "image/png", b""), "'a.png' (image/png, 0 bytes) is not shown: it is empty"),
    "blank": (FileResponse("a.txt", "text/plain", b" \n"), "it holds nothing but blank space"),
    "without an ending": (FileResponse("photo", "image/bmp", b"BM\xff"), "The file 'photo.bmp'"),
    "half a pair": (
        FileResponse("\ud800", "\ud800", BINARY),
        "The file '\N{REPLACEMENT CHARACTER}' (\N{REPLACEMENT CHARACTER}, 6",
    ),
}


@pytest.mark.parametrize(("file", "says"), NAMED.values(), ids=NAMED)
def test_a_file_that_cannot_be_shown_is_named(file: FileResponse, says: str) -> None:
    """With its name, its type, its size, and why it is not shown. That is no error."""
    assert says in said(file)


def test_an_image_over_which_the_reader_of_sizes_stumbles_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older releases of it raise where newer ones say that they do not know."""

    def stumble(file: Any) -> Any:
        raise ValueError("invalid PNG")

    monkeypatch.setattr(imagesize, "get", stumble)
    assert "the image is damaged or cut off" in said(FileResponse("a.png", "image/png", png()))


def test_the_largest_image_goes_out() -> None:
    """8000 pixels a side, and 5 MB of base64."""
    largest = png(8000, 8000, size=3_932_160 - len(png()))
    assert len(encoded(largest)) == 5_242_880
    assert sent(FileResponse("a.png", "image/png", largest)) == image(largest, "image/png")


def test_of_many_images_each_must_be_smaller() -> None:
    """Up to 20 may have 8000 pixels a side; of more, those above 2000 are named, and a block is an error."""
    large = FileResponse("a.png", "image/png", png(2001, 1))
    assert {block["type"] for block in sent([large] * 20)} == {"image"}
    assert {block["type"] for block in sent([large] * 21)} == {"text"}
    assert "a side may have 2000" in sent([large] * 21)[0]["text"]
    blocks = image(large.data, "image/png") * 21
    assert "result[0].source: it is 2001 x 1 pixels, and a side may have 2000" in error(blocks)
    assert "may have 8000" in error(image(png(8001, 1), "image/png"))


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b"text", text("text")),
        (bytearray(b"text"), text("text")),
        (memoryview(b"text"), text("text")),
        (png(), image(png(), "image/png")),
        (b"", text("A file (application/octet-stream, 0 bytes) is not shown: it is empty.")),
    ],
)
def test_bytes_are_a_file_without_a_name(data: Any, content: Any) -> None:
    """An image, a document, text, or named."""
    assert sent(data) == content


@given(
    st.binary(max_size=40),
    st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF1234WEBP", b"%PDF-"]),
    st.text(min_size=1).filter(str.strip),
)
def test_any_bytes_are_shown_or_named(data: bytes, start: bytes, mime_type: str) -> None:
    """Whatever they are called: no error, and the API takes what goes out."""
    assert "is_error" not in answer(FileResponse("a", mime_type, start + data))
    assert "is_error" not in answer(start + data)


def test_a_path_is_the_file_that_it_leads_to(tmp_path: Path) -> None:
    """It is read when the result is made."""
    (tmp_path / "a.csv").write_text("a,b\n")
    (tmp_path / "a.txt").write_bytes(png())
    (tmp_path / "a.gz").write_bytes(b"\x1f\x8b\x00")
    assert said(tmp_path / "a.csv") == "a,b\n"
    assert sent(tmp_path / "a.txt") == image(png(), "image/png")
    assert said(tmp_path / "a.gz").startswith("The file 'a.gz' (application/")
    assert sent(["Look:", FileResponse("b", "text/plain", b"b")])[1] == text("b")[0]


def test_a_path_that_leads_nowhere_is_an_error_result(tmp_path: Path) -> None:
    """Missing, a directory, a pipe, or not to be read: it is named, and why."""
    os.mkfifo(tmp_path / "pipe")
    assert f"the file {str(tmp_path / 'gone')!r} cannot be read: No such file or directory" in error(tmp_path / "gone")
    assert "cannot be read: it is a directory, not a file" in error(tmp_path)
    assert "cannot be read: it is no regular file" in error(tmp_path / "pipe")
    assert "embedded null" in error(Path("a\0b"))


def test_a_path_to_a_file_that_no_request_takes_is_named_unread(tmp_path: Path) -> None:
    """More than 31 MB, for the request says more than this."""
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(40_000_000)
    assert "it has 40,000,000 bytes, and a result takes 32,505,856" in said(tmp_path / "a.txt")


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="only Linux has files that say they are empty")
def test_a_path_to_a_file_that_does_not_say_its_size_is_read_no_further_than_it_may_be() -> None:
    """It says that it has none, and goes on for 256 GB."""
    assert Path("/proc/self/pagemap").stat().st_size == 0
    assert "it has more than 32,505,856 bytes, which is what a result takes" in said(Path("/proc/self/pagemap"))
    assert "Name:" in said(Path("/proc/self/status"))


@pytest.mark.parametrize(
    ("response", "name"),
    [
        (FileResponse("report.pdf", "application/pdf", b""), "report.pdf"),
        (FileResponse("report", "application/pdf", b""), "report.pdf"),
        (FileResponse("photo", "image/jpeg", b""), "photo.jpg"),
        (FileResponse("notes", "text/plain; charset=utf-8", b""), "notes.txt"),
        (FileResponse("thing", "application/x-unknown", b""), "thing"),
        (Path("no") / "such" / "file.csv", "file.csv"),
        (b"\0", "[file]"),
    ],
)
def test_the_plain_text_of_a_file_is_its_name_with_an_ending(response: Any, name: str) -> None:
    """A path is not even read for it."""
    assert getattr(response, "file_name", name) == name
    assert ADAPTER.to_plain_text(response) == name
