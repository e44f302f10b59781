"""TensorBoard shows the pictures, and the configuration beside what the run reached; read back by its own code."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PROGRAM = """
    import io, sys
    import numpy as np
    from PIL import Image
    from nerfjax.telemetry.tensorboard_events import TensorBoardWriter, write_final_metrics
    folder = sys.argv[1]
    writer = TensorBoardWriter(folder, hparams={"field.name": "nerf", "train.steps": 7, "a.flag": True, "none": None})
    view = np.zeros((4, 6, 3), np.uint8)
    view[:, 3:] = (255, 128, 0)
    writer.write({"step": 5, "loss": 1.0, "eval/view": view})
    writer.close()
    write_final_metrics(folder, {"test/psnr": 31.5}, step=7)
    assert "tensorflow" not in sys.modules

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata
    found = EventAccumulator(folder).Reload()
    (image,) = found.Images("eval/view")
    assert image.step == 5 and np.array_equal(np.asarray(Image.open(io.BytesIO(image.encoded_image_string))), view)
    assert [(e.step, e.value) for e in found.Scalars("test/psnr")] == [(7, 31.5)] and found.Scalars("loss")
    content = found.PluginTagToContent("hparams")
    start = metadata.parse_session_start_info_plugin_data(content["_hparams_/session_start_info"])
    assert start.hparams["field.name"].string_value == "nerf" and start.hparams["train.steps"].number_value == 7
    assert start.hparams["a.flag"].bool_value and start.hparams["none"].string_value == "None"
    experiment = metadata.parse_experiment_plugin_data(content["_hparams_/experiment"])
    assert "test/psnr" in [info.name.tag for info in experiment.metric_infos]
    assert [info.name for info in experiment.hparam_infos] == ["field.name", "train.steps", "a.flag", "none"]
    print("done")
"""


def test_tensorboard_reads_pictures_and_hparams(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path / "tensorboard")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == "done", done.stderr
