"""What readers note and refuse has a code of its own, and every code has a test."""

from __future__ import annotations

import pytest
from test_doctor import ELSEWHERE, FAULTS

from nerfjax.errors import UserError
from nerfjax.scenes.doctor import CODES, Finding
from nerfjax.scenes.doctor.findings import finding_from_error, finding_from_note

NOTES = {  # what readers note, by its code
    "17 of 67 images are missing and were left out: a.jpg": "images-missing",
    "4 of 9 cameras have no image and were left out: a.jpg": "images-missing",
    "3 of 20 photos were not registered and were left out: a.jpg": "images-unregistered",
    "2 images belong to no frame and are left out: a.jpg.": "images-unregistered",
    "2 of 9 frames lost their track (-inf), left out: 3, 4.": "images-unregistered",
    "2 cameras are disabled and were left out: a": "images-unregistered",
    "2 of 9 cameras are slaves of a rig whose sensor states no rotation and location; this is not supported and they "
    "were left out: a": "images-unregistered",
    "There is no calibration: took the customary one of 7-Scenes.": "intrinsics-assumed",
    "The table has no k4: they are taken as 0.": "intrinsics-assumed",
    "2 frames state k2 and no k1 (a, b): is it lost?": "intrinsics-incomplete",
    "20 images have another size than their camera (a): the intrinsics were scaled to them.": "intrinsics-scaled",
    "3 of 42 frames have another lens than the rest: a, b, c.": "lens-odd",
    "All images have the focal length of the first camera and no distortion, as the format goes.": "lens-reduced",
    "Cameras have a skew of up to 0.5 pixels, which is ignored.": "lens-reduced",
    "sensor 0 (X): b2 were left out; they move pixels by up to 0.3.": "lens-reduced",
    "The principal point lies outside 2 images (a, b): were they cropped?": "principal-point",
    "3 of 4 frames have no depth: a, b, c.": "depths-missing",
    "train: 3 depth images are missing: a.": "depths-missing",
    "depth_path without integer_depth_scale: the depths have no unit and are ignored.": "depths-missing",
    "The point cloud a.ply is missing.": "points-missing",
    "3 of 20 sparse points are no points and were left out.": "points-missing",
    "images_8 lacks 42 of 71 images (a): it is out of date and not used; …": "copies-stale",
    "images_8 is not used, images is made smaller instead: a has 3x4 there, which is not 1/8 of 9x9.": "copies-stale",
    "2 frames have a rolling shutter (transform_matrix_start, _end; a, b): the camera is …": "rolling-shutter",
    "The frames have times: the scene may move. It is taken to stand still; times are ignored.": "scene-moves",
    "2 of 9 images have no mask in mask/.": "masks-partial",
    "2 frames have a mask_path and a dynamic_mask_*.png: took the mask_path.": "masks-ambiguous",
    "NDC was asked for, but the cameras do not all look one way; the scene stays metric.": "ndc-refused",
    "poses_bounds.npy has 71 rows and the COLMAP model 70 images: the model was taken.": "poses-disagree",
    "poses_bounds.npy has other poses than the COLMAP model beside it; the model was taken.": "poses-disagree",
    "There are no corrected cameras: poses are the phone's, photos are slightly distorted.": "poses-uncorrected",
    "There is no list of images beside a.out: camera i was taken to be the i-th image by name.":
        "images-paired-by-order",
    "Pose 0 is taken to belong to image number 1, and so on.": "images-paired-by-order",
    "black_transparent has no effect: black pixels stay black.": "setting-ignored",
    "Columns that are not known have no effect: a.": "setting-ignored",
    "4 images occur in two splits (a = b): test scores will flatter.": "split-leakage",
    "2 cameras stand more than 10 times the usual distance away: a.": "pose-outlier",
    "2 COLMAP models; took sparse/1 with 20 images, not sparse/0: 2.": "several-models",
    "The file holds 2 chunks: the one with 20 aligned cameras was taken.": "several-models",
    "The cameras form 2 components without a common frame: the one with 9 was taken.": "several-models",
    "68 images were found by name in another folder: a": "images-found-elsewhere",
    "3 of 3 frames have masks; masked pixels are ignored.": "note",
    "Cameras and lenses are those of the COLMAP model; a.npy has one focal length and no distortion.": "note",
    "Cameras were solved by structure from motion: 20 of 24 images.": "note",
    "a fits a.png, a.jpg: took a.png.": "note",
    "The moon is full.": "note",
}  # fmt: skip
REFUSALS = {  # what readers refuse, by its code
    "The format of the capture is not recognised.": "not-recognised",
    "The format has no such option.": "option-wrong",
    "Reading EXR files needs a package that is not installed.": "package-missing",
    "Several files describe cameras.": "names-ambiguous",
    "There are not as many cameras as images.": "cameras-unpaired",
    "A frame is in two splits.": "splits-bad",
    "There are too few images to solve for their cameras.": "few-images",
    "Structure from motion could not place enough of the images.": "few-registered",
    "No image belongs to one of the poses.": "images-missing",
    "The intrinsics are missing: the format does not say them.": "intrinsics-bad",
    "A quaternion is zero.": "pose-bad",
    "A depth image cannot be read.": "image-unreadable",
    "The file is not valid JSON.": "unreadable",
}


def test_every_code_has_a_test():
    assert set(FAULTS) | set(ELSEWHERE) | set(NOTES.values()) | set(REFUSALS.values()) == set(CODES)


@pytest.mark.parametrize("note", NOTES)
def test_what_readers_note_has_a_code(note):
    finding = finding_from_note(note)
    assert finding.code == NOTES[note] and (finding.code != "note" or "moon" in note or finding.severity == "info")


@pytest.mark.parametrize("problem", REFUSALS)
def test_what_readers_refuse_has_a_code(problem):
    assert finding_from_error(UserError(problem)).code == REFUSALS[problem]


def test_findings_are_checked():
    with pytest.raises(ValueError, match="no such finding"):
        Finding("no-such-code", "error", "What?")
