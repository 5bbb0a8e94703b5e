"""Event files of libtrain as TensorBoard reads them: by its event accumulator, and through the data provider and the
back end of its HPARAMS page."""

import struct
import sys
import unittest
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

jobs.require_packages("tensorboard")
from tensorboard.backend.event_processing import data_provider, event_accumulator, plugin_event_multiplexer
from tensorboard.context import RequestContext
from tensorboard.data import provider
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups
from tensorboard.plugins.histogram import metadata as histogram_metadata
from tensorboard.plugins.image import metadata as image_metadata
from tensorboard.plugins.scalar import metadata as scalar_metadata
from tensorboard.plugins.text import metadata as text_metadata

LARGEST_STEP = (1 << 31) - 1  # of TensorBoard's HPARAMS page


def png(height, width):
    def chunk(kind, content):
        return (struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content)))

    rows = b"".join(b"\0" + bytes(range(3 * width)) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class TensorBoardReads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.logs = jobs.temporary_directory(cls)
        (cls.logs / "run").mkdir()
        picture = cls.logs / "picture.png"
        picture.write_bytes(png(2, 3))
        job = jobs.run([jobs.program("tensor_board_program"), cls.logs / "run", picture])
        assert job.exit_code == 0, job
        cls.accumulator = event_accumulator.EventAccumulator(str(cls.logs / "run"))
        cls.accumulator.Reload()
        multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(cls.logs))
        multiplexer.Reload()
        cls.provider = data_provider.MultiplexerDataProvider(multiplexer, str(cls.logs))
        cls.context = RequestContext()

    def tensors(self, plugin, tag):
        found = self.provider.read_tensors(self.context, experiment_id="", plugin_name=plugin, downsample=100,
                                           run_tag_filter=provider.RunTagFilter(runs=["run"], tags=[tag]))
        return found["run"][tag]

    def test_scalars_with_their_steps(self):
        events = self.accumulator.Scalars("train/loss")
        self.assertEqual([event.step for event in events], [0, 1, 2, 3, 4])
        for event in events:
            self.assertAlmostEqual(event.value, 1 / (1 + event.step), places=6)
        found = self.provider.read_scalars(self.context, experiment_id="", plugin_name=scalar_metadata.PLUGIN_NAME,
                                           downsample=100)
        self.assertEqual(set(found["run"]), {"train/loss", "train/lr", "not a number", "far"})
        self.assertEqual(found["run"]["far"][0].step, LARGEST_STEP)
        self.assertNotEqual(found["run"]["not a number"][0].value, found["run"]["not a number"][0].value)

    def test_text(self):
        (event,) = self.tensors(text_metadata.PLUGIN_NAME, "note")
        self.assertEqual((event.step, event.numpy.item().decode()), (2, "Grüße, *all*"))

    def test_images(self):
        found = self.provider.list_blob_sequences(self.context, experiment_id="",
                                                  plugin_name=image_metadata.PLUGIN_NAME)
        self.assertEqual(set(found["run"]), {"picture"})
        found = self.provider.read_blob_sequences(self.context, experiment_id="",
                                                  plugin_name=image_metadata.PLUGIN_NAME, downsample=10)
        (event,) = found["run"]["picture"]
        blobs = [self.provider.read_blob(self.context, blob_key=value.blob_key) for value in event.values]
        self.assertEqual(blobs, [b"3", b"2", png(2, 3)])  # width, height, the image

    def test_histograms(self):
        (event,) = self.tensors(histogram_metadata.PLUGIN_NAME, "weights")
        self.assertEqual(event.step, 4)
        self.assertEqual(event.numpy[:, 2].sum(), 1000)
        self.assertAlmostEqual(event.numpy[0, 0], 0.0, places=6)
        self.assertAlmostEqual(event.numpy[-1, 1], 0.999, places=6)

    def test_hyperparameters_with_the_metrics_of_the_run(self):
        backend = backend_context.Context(type("TensorBoardContext", (), {"data_provider": self.provider})())
        experiment = backend.experiment_from_metadata(
            self.context, "", include_metrics=True,
            hparams_run_to_tag_to_content=backend.hparams_metadata(self.context, ""),
            data_provider_hparams=backend.hparams_from_data_provider(self.context, "", limit=None))
        self.assertEqual({info.name for info in experiment.hparam_infos}, {"lr", "model", "amp"})
        self.assertIn("train/loss", {info.name.tag for info in experiment.metric_infos})
        request = api_pb2.ListSessionGroupsRequest(start_index=0, slice_size=10, col_params=[],
                                                   allowed_statuses=[api_pb2.STATUS_SUCCESS])
        groups = list_session_groups.Handler(self.context, backend, "", request).run().session_groups
        self.assertEqual(len(groups), 1)
        self.assertEqual(groups[0].hparams["lr"].number_value, 0.1)
        self.assertEqual(groups[0].hparams["model"].string_value, "resnet18")
        self.assertFalse(groups[0].hparams["amp"].bool_value)


if __name__ == "__main__":
    jobs.require_programs("tensor_board_program")
    unittest.main()
