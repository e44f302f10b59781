"""TensorBoard events of a run: curves, pictures, and its configuration beside what it reached (HParams)."""

from __future__ import annotations

import io
import math
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath
from PIL import Image

HPARAM_METRICS = ("test/psnr", "test/ssim", "eval/psnr", "loss", "seconds")


class TensorBoardWriter:
    """Writes reports as TensorBoard events; the file is begun with the first one.

    tensorboard's ``EventFileWriter`` imports tensorflow wherever it is installed, for its file system; its
    ``RecordWriter`` does not, and takes any file. The same holds for the summaries of its HParams plugin, of which
    only the protocol buffers are used.

    Args:
      folder: where the event file goes.
      resume_step: TensorBoard is told to forget earlier files' events after this step; None leaves them.
      hparams: flat configuration of the run, for the HParams table; its other columns are ``HPARAM_METRICS``.
    """

    def __init__(
        self, folder: str | os.PathLike, *, resume_step: int | None = 0, hparams: Mapping[str, Any] | None = None
    ):
        self._folder, self._resume_step, self._records = epath.Path(folder), resume_step, None
        self._hparams = hparams

    def write(self, report: Mapping[str, Any]) -> None:
        """Writes every finite number and every picture of the report."""
        from tensorboard.compat.proto import event_pb2, summary_pb2

        if self._records is None:
            self._open()
        numbers = {k: float(v) for k, v in report.items() if k != "step" and isinstance(v, (int, float))}
        values = [summary_pb2.Summary.Value(tag=k, simple_value=v) for k, v in numbers.items() if math.isfinite(v)]
        values += [_picture(tag, value) for tag, value in report.items() if isinstance(value, np.ndarray)]
        self._write(event_pb2.Event(step=int(report["step"]), summary=summary_pb2.Summary(value=values)))

    def close(self) -> None:
        """Closes the event file."""
        if self._records is not None:
            self._records.close()
            self._records = None

    def _open(self) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._records = RecordWriter((self._folder / name).open("wb"))
        self._write(event_pb2.Event(file_version="brain.Event:2"))
        if self._resume_step is not None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(event_pb2.Event(step=self._resume_step + 1, session_log=start))
        if self._hparams is not None:
            for value in _hparam_values(self._hparams):
                self._write(event_pb2.Event(summary=summary_pb2.Summary(value=[value])))

    def _write(self, event: Any) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())
        self._records.flush()


def write_final_metrics(folder: str | os.PathLike, metrics: Mapping[str, Any], *, step: int) -> None:
    """Adds what was measured after the training, as "test/psnr", to the events of a run."""
    writer = TensorBoardWriter(folder, resume_step=None)
    writer.write({**metrics, "step": step})
    writer.close()


def _picture(tag: str, pixels: np.ndarray) -> Any:
    from tensorboard.compat.proto import summary_pb2

    encoded = io.BytesIO()
    Image.fromarray(pixels).save(encoded, "PNG")
    height, width, channels = pixels.shape
    image = summary_pb2.Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=encoded.getvalue()
    )
    return summary_pb2.Summary.Value(tag=tag, image=image)


def _hparam_values(hparams: Mapping[str, Any]) -> list[Any]:
    """The configuration and the names of the metrics, as TensorBoard's HParams plugin wants them."""
    from tensorboard.compat.proto import summary_pb2
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    start = plugin_data_pb2.SessionStartInfo()
    for name, value in hparams.items():
        if isinstance(value, bool):
            start.hparams[name].bool_value = value
        elif isinstance(value, (int, float)):
            start.hparams[name].number_value = value
        else:
            start.hparams[name].string_value = str(value)
    metrics = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in HPARAM_METRICS]
    contents = {
        metadata.EXPERIMENT_TAG: plugin_data_pb2.HParamsPluginData(
            experiment=api_pb2.Experiment(hparam_infos=[_hparam_info(*item) for item in hparams.items()],
                                          metric_infos=metrics)
        ),
        metadata.SESSION_START_INFO_TAG: plugin_data_pb2.HParamsPluginData(session_start_info=start),
    }  # fmt: skip
    return [
        summary_pb2.Summary.Value(
            tag=tag, metadata=metadata.create_summary_metadata(content), tensor=metadata.NULL_TENSOR
        )
        for tag, content in contents.items()
    ]


def _hparam_info(name: str, value: Any) -> Any:
    from tensorboard.plugins.hparams import api_pb2

    kind = api_pb2.DATA_TYPE_STRING
    if isinstance(value, bool):
        kind = api_pb2.DATA_TYPE_BOOL
    elif isinstance(value, (int, float)):
        kind = api_pb2.DATA_TYPE_FLOAT64
    return api_pb2.HParamInfo(name=name, type=kind)
