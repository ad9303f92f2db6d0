"""Records come back from every compression unchanged, and nothing that swells is let in."""

import gzip
import subprocess
import sys

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_codec

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.records.compression import (
    Compression,
    compress,
    decompress,
    decompress_into,
)

CODES = st.sampled_from(Compression)
ZEROS = bytes(4 << 20)


@given(CODES, st.binary(max_size=2000), st.integers(0, 200))
def test_compressed_bytes_come_back(code: Compression, data: bytes, times: int) -> None:
    assert bytes(decompress(code, compress(code, data * times))) == data * times


@pytest.mark.parametrize("code", [code for code in Compression if code])
def test_a_bomb_is_refused_and_named(code: Compression) -> None:
    with pytest.raises(DecodeError, match="beyond the limit"):
        decompress(code, compress(code, ZEROS), bytes_max=1 << 20)


@pytest.mark.parametrize("code", [code for code in Compression if code])
def test_the_limit_itself_is_allowed(code: Compression) -> None:
    assert bytes(decompress(code, compress(code, ZEROS), bytes_max=len(ZEROS))) == ZEROS


@given(CODES, st.binary(max_size=300))
def test_noise_is_a_decode_error_and_nothing_else(code: Compression, noise: bytes) -> None:
    try:
        decompress(code, noise, bytes_max=1 << 20)
    except DecodeError:
        return


@given(st.sampled_from([code for code in Compression if code]), st.data())
def test_damage_is_a_decode_error_or_other_bytes(code: Compression, data: st.DataObject) -> None:
    stored = bytearray(compress(code, b"some records, " * 40))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        decompress(code, stored[: data.draw(st.integers(0, len(stored)))], bytes_max=1 << 20)
    except DecodeError:
        return


def test_an_unknown_code_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="unknown compression"):
        decompress(5, b"")
    with pytest.raises(DecodeError, match="unknown compression"):
        compress(7, b"")


@given(st.binary(max_size=100_000))
def test_bare_snappy_as_librdkafka_writes_it_is_read(data: bytes) -> None:
    bare = bytes(cramjam.snappy.compress_raw(data))

    assert bytes(decompress(Compression.SNAPPY, bare)) == data


def test_a_snappy_size_that_cannot_be_true_allocates_nothing() -> None:
    declares_64_mib = b"\x80\x80\x80\x20" + b"\x00a"

    with pytest.raises(DecodeError, match="more than it can hold"):
        decompress(Compression.SNAPPY, declares_64_mib)


def test_streams_in_several_pieces_are_read_whole() -> None:
    without_size = zstandard.ZstdCompressor(write_content_size=False)

    assert decompress(Compression.GZIP, gzip.compress(b"ab") + gzip.compress(b"cd")) == b"abcd"
    assert (
        decompress(Compression.ZSTD, without_size.compress(b"ab") + zstandard.compress(b"cd"))
        == b"abcd"
    )


def test_other_clients_read_what_we_write_and_the_other_way_round() -> None:
    data = b"a record of no great interest " * 5000
    pairs = {
        Compression.GZIP: (kafka_codec.gzip_encode, kafka_codec.gzip_decode),
        Compression.SNAPPY: (kafka_codec.snappy_encode, kafka_codec.snappy_decode),
        Compression.LZ4: (kafka_codec.lz4_encode, kafka_codec.lz4_decode),
        Compression.ZSTD: (kafka_codec.zstd_encode, kafka_codec.zstd_decode),
    }
    for code, (encode, decode) in pairs.items():
        assert bytes(decode(bytes(compress(code, data)))) == data, code
        assert bytes(decompress(code, bytes(encode(data)))) == data, code


def test_lz4_blocks_are_independent_because_java_reads_no_others() -> None:
    written = bytes(compress(Compression.LZ4, b"x" * 200_000))

    assert lz4.frame.get_frame_info(written)["block_linked"] is False


@pytest.mark.slow
def test_a_process_that_compresses_nothing_loads_no_compression_library() -> None:
    program = "import headwater.core_log.records.record_codec, sys; print(*sorted(sys.modules))"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout

    heavy = {"zstandard", "lz4", "cramjam", "numpy", "pyarrow"}
    assert not heavy & set(loaded.decode().split())


def test_bytes_after_damaged_ones_are_read_all_the_same() -> None:
    stored, room = compress(Compression.ZSTD, ZEROS), memoryview(bytearray(len(ZEROS)))
    with pytest.raises(DecodeError, match="damaged"):
        decompress_into(Compression.ZSTD, bytes(stored[:40]) + b"?" * 200, room)

    room[:9] = b"unchanged"
    assert decompress_into(Compression.ZSTD, stored, room)
    assert room == ZEROS
    assert not decompress_into(Compression.ZSTD, stored, room[:-1]), "more than was declared"
