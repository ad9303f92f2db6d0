"""Lines of text to one column."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.files.schema_inference import InferredSchema

COLUMN = "line"


class TextLines:
    """Every line is a row, empty ones too; it has to be UTF-8."""

    def parse(self, block: bytes | memoryview, shape: InferredSchema) -> pa.Table:
        shape.add({COLUMN: pa.string()})
        content = pa.py_buffer(block)
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
        if not len(ends) or ends[-1] < len(block):
            ends = np.append(ends, len(block))
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        lines = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), content)
        lines.validate(full=True)
        cut = pc.replace_substring_regex(lines, pattern=r"\r?\n\z", replacement="")
        columns = {name: pa.nulls(len(ends), kind) for name, kind in shape.types.items()}
        return pa.table(columns | {COLUMN: cut})
